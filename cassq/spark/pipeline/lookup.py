"""One message in the index of a journal, without a session of Spark.

Owns which files are read for it: those of its pipe's bucket. Works on folders of this machine. What must not
break: no file is read that the index does not name; see `cassq.spark.pipeline.journal_index`.
"""

import json
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import pyarrow.parquet as pq

from cassq.errors import InvalidOptionError
from cassq.model.ids import MessageId, to_message_id
from cassq.model.past import past_from_text
from cassq.observing.inspection import MessageState, MessageStatus
from cassq.spark.pipeline.journal_rows import bucket_of
from cassq.topics.history import MessageHistory


def find_in_index(out: str, message_id: MessageId | str) -> MessageHistory | None:
    """Return what happened to a message whose pipe is gone; None where the index does not tell.

    Args:
        out: the folder of the index.

    Raises: InvalidOptionError: it is no message id, or there is no index.
    """
    wanted = to_message_id(message_id)
    if not Path(out, "pieces", "_spark_metadata").is_dir():
        raise InvalidOptionError(
            f"{out} has no index of a journal: `cassq pipeline journal {out}` writes one"
        )
    pipes = [wanted.pipe]
    row = _find(out, wanted.pipe, [("first", "<=", wanted.seq), ("last", ">=", wanted.seq)])
    while row and row["target"]:
        target = UUID(row["target"])
        place = [("first_pipe", "=", str(wanted.pipe)), ("first_seq", "<=", wanted.seq)]
        row = _find(out, target, place, wanted.seq)
        pipes.append(target)
    if row is None:
        return None
    status = MessageStatus(MessageState(row["ending"]), row["attempts"], reason=row["reason"] or "")
    return MessageHistory(
        wanted,
        row["queue"],
        row["pusher"],
        status,
        tuple(pipes),
        retired_at=row["retired_at"].replace(tzinfo=UTC),
        ended_at=row["ended_at"].replace(tzinfo=UTC),
        past=past_from_text(row["past"] or ""),
    )


def _find(
    out: str, pipe: UUID, place: list[tuple[str, str, object]], first_seq: int | None = None
) -> dict[str, Any] | None:
    """Return the row of `pieces` that has a message of a pipe.

    Args:
        place: what holds of the row.
        first_seq: of a message that was moved to the pipe, the number that it had first.
    """
    for file in _files_of(out, bucket_of(pipe)):
        filters = [("pipe", "=", str(pipe)), *place]
        found = pq.read_table(file, filters=filters, partitioning=None, coerce_int96_timestamp_unit="us")
        row: dict[str, Any]
        for row in found.to_pylist():
            if first_seq is None or first_seq <= row["first_seq"] + row["last"] - row["first"]:
                return row
    return None


def _files_of(out: str, bucket: int) -> Iterator[Path]:
    folder, ending = Path(out, "compacted", "pieces"), f"bucket={bucket}"
    replaced: set[str] = set()
    for told in sorted(folder.glob("_runs/[0-9]*")):
        run = json.loads(told.read_text("utf-8"))
        replaced |= set(run["replaced"])
        yield from sorted(folder.glob(f"{run['name']}/date=*/{ending}/*.parquet"))
    for path in _logged(Path(out, "pieces", "_spark_metadata")):
        if path.parent.name == ending and path.name not in replaced:
            # By its place below the folder: that may have been moved as a whole.
            yield Path(out, "pieces", *path.parts[-3:])


def _logged(log: Path) -> Iterator[Path]:
    """Yield the files that Spark's log of a folder names."""
    named = [name for name in sorted(log.iterdir()) if name.name[0].isdecimal()]
    batches = {int(name.name.removesuffix(".compact")): name for name in named}
    begun = max((number for number, name in batches.items() if name.suffix == ".compact"), default=0)
    for number in sorted(batches):
        if number >= begun:
            for line in batches[number].read_text("utf-8").splitlines()[1:]:
                yield Path(unquote(urlsplit(json.loads(line)["path"]).path))
