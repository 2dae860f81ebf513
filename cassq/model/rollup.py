"""The figures of a rollup, as a store keeps them.

One row tells of the messages of a queue that were pushed in one minute by one pusher and that one holder had
last, or nobody. What must not break: figures that do not go together are refused where they are read.
"""

from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any

from cassq.model.message import to_datetime

#: So long a store keeps them.
KEPT = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Rollup:
    """What one rollup counted for one minute, pusher and holder of a queue.

    Attributes:
        rolled_up_at_ms: when it was, milliseconds since 1970.
        minute_ms: the beginning of the minute in which the messages were pushed, milliseconds since 1970.
        pusher: who pushed them; "" for dead letters, of which nobody remembers.
        holder: who had them last; "" for those that nobody had.
        waiting, pending, returned, committed, dead: messages by state; returned ones wait again.
        body_bytes: what the bodies of all of them weigh.
        body_p50_bytes, body_p90_bytes, body_p99_bytes: percentiles of their sizes.
        oldest_age_ms: since when the oldest is there that has not ended; None where all have.
        age_p50_ms, age_p90_ms, age_p99_ms: percentiles of the ages of those that have not ended.

    Raises: TypeError, ValueError: no rollup finds such figures.
    """

    rolled_up_at_ms: int
    minute_ms: int
    pusher: str
    holder: str
    waiting: int
    pending: int
    returned: int
    committed: int
    dead: int
    body_bytes: int
    body_p50_bytes: int
    body_p90_bytes: int
    body_p99_bytes: int
    oldest_age_ms: int | None
    age_p50_ms: int | None
    age_p90_ms: int | None
    age_p99_ms: int | None

    def __post_init__(self) -> None:
        """Check that the figures go together."""
        for name in NAMES:
            value = getattr(self, name)
            if name in _TEXTS:
                if not isinstance(value, str):
                    raise TypeError(f"{name} is {value!r}, and not a text")
            elif value is not None or name not in _AGES:
                if type(value) is not int:
                    raise TypeError(f"{name} is {value!r}, and not a whole number")
                if value < 0:
                    raise ValueError(f"{name} is {value}, below 0")
        is_living = self.waiting + self.pending + self.returned > 0
        if any((getattr(self, name) is not None) != is_living for name in _AGES):
            raise ValueError("ages are of messages that have not ended, and of nothing else")

    @property
    def rolled_up_at(self) -> datetime:
        """When it was, in UTC."""
        return to_datetime(self.rolled_up_at_ms)

    @property
    def minute(self) -> datetime:
        """The beginning of the minute in which the messages were pushed, in UTC."""
        return to_datetime(self.minute_ms)

    @property
    def day(self) -> date:
        """The day of the rollup, in UTC."""
        return self.rolled_up_at.date()

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values; both moments in ISO 8601, as `rolled_up_at` and `minute`."""
        figures = {name: getattr(self, name) for name in NAMES[2:]}
        return {
            "rolled_up_at": self.rolled_up_at.isoformat(),
            "minute": self.minute.isoformat(),
            **figures,
        }


_TEXTS = ("pusher", "holder")
_AGES = ("oldest_age_ms", "age_p50_ms", "age_p90_ms", "age_p99_ms")

#: What is stored of it, in this order.
NAMES = tuple(each.name for each in fields(Rollup))


def day_of(day: date) -> tuple[int, int]:
    """Return the first millisecond of a day in UTC, and that of the day after it."""
    begin_ms = round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
    return begin_ms, begin_ms + timedelta(days=1) // timedelta(milliseconds=1)
