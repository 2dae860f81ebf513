"""Rollups as rows of a table, to and from the model.

Refuses, with `DecodeError`, every row that cassq did not write.
"""

from cassq.model.rollup import NAMES, Rollup
from cassq.storage.cassandra.session import Row
from cassq.storage.cassandra.values import Values, decoding, to_ms


def rollup_values(rollup: Rollup) -> Values:
    """Return the columns of `statistics` after queue and shard."""
    # Nulls are written, not left out: they may replace the ages of an earlier row of the same key.
    return rollup.day, *(getattr(rollup, name) for name in NAMES)


def to_rollup(row: Row) -> Rollup:
    """Read a row of `statistics`, without queue, shard and day."""
    with decoding("a rollup", row):
        rolled_up_at, minute, *rest = row
        return Rollup(to_ms(rolled_up_at), to_ms(minute), *rest)
