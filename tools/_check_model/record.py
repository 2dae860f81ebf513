"""What was searched already: docs/model/searched.json, one line for each search that ended as it should.

Owns the file. A search is known by the whole text of its model and its bounds: where one character of these
is another, nobody has searched it. Refuses to judge. What must not break: only a search that ended as it
should stands there.
"""

import hashlib
import json

from _check_model.runs import Run
from _check_model.spin import MODELS, Verdict

FILE = MODELS / "searched.json"


def name(run: Run) -> str:
    """Return what the file calls a search."""
    return f"{run.file} NO_{run.without.upper()}" if run.without else f"{run.file} {run.title}"


def digest(run: Run) -> str:
    """Return what names the model and the bounds of a search as they are now."""
    text = (MODELS / f"{run.file}.pml").read_bytes()
    return hashlib.sha256(b"\0".join([text, *map(str.encode, run.definitions)])).hexdigest()[:16]


def is_known(run: Run) -> bool:
    """Return whether this very search is on record."""
    return _read().get(name(run), {}).get("digest") == digest(run)


def write(verdicts: dict[Run, Verdict]) -> None:
    """Write down these searches, all of which ended as they should, and no others."""
    lines = {
        name(run): {"digest": digest(run), "states": verdict.states, "failure": verdict.failure}
        for run, verdict in verdicts.items()
    }
    rows = (f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in lines.items())
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def _read() -> dict[str, dict[str, str]]:
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
