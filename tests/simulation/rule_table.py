"""The table of docs/proof.md: each rule of the models, the bug that takes it away in the code, who finds it.

Owns the table and its file, `rules.json`: rule, bug, and the seconds that finding it took. What must not
break: a rule without a bug says why.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from mutants import find

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
sys.path.insert(0, str(_ROOT / "tools"))
from _check_model.rules import RULES  # noqa: E402 - it is a tool's own

PAGE = _ROOT / "docs" / "proof.md"
_DATA = _HERE / "rules.json"
_BEGIN, _END = "<!-- rules -->\n", "<!-- end of rules -->\n"

__all__ = ["PAGE", "RULES", "Row", "rows", "text", "write"]


@dataclass(frozen=True, slots=True)
class Row:
    """One rule."""

    rule: str
    mutant: str = ""
    seconds: float = 0.0
    why: str = ""


def rows() -> list[Row]:
    """Return the rows in the order of the models."""
    return [Row(**each) for each in json.loads(_DATA.read_text(encoding="utf-8"))]


def text() -> str:
    """Return the table as it stands in the page."""
    words = {rule.name: (rule.file, rule.text) for rule in RULES}
    lines = ["| model | rule | bug that takes it away | found by | s |", "| --- | --- | --- | --- | --- |"]
    for row in rows():
        model, rule = words[row.rule]
        if row.mutant:
            test = find(row.mutant).test.rpartition("::")[2].partition("[")[0]
            seconds = f"{row.seconds:.0f}" if row.seconds else ""
            check = f"`{test}`" if test else find(row.mutant).check
            lines.append(f"| {model} | {rule} | {row.mutant} | {check} | {seconds} |")
        else:
            lines.append(f"| {model} | {rule} | none: {row.why} | | |")
    return "\n".join([_BEGIN, *lines, "", _END])


def write(seconds: dict[str, float]) -> None:
    """Write the seconds that finding each bug took into the data, and the table into the page."""
    found = [
        {**each, "seconds": round(seconds.get(each.get("mutant", ""), each.get("seconds", 0.0)), 1)}
        for each in json.loads(_DATA.read_text(encoding="utf-8"))
    ]
    lines = ",\n".join(f"    {json.dumps(each)}" for each in found)
    _DATA.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(_BEGIN)[0], page.partition(_END)[2]
    PAGE.write_text(before + text() + after, encoding="utf-8")
