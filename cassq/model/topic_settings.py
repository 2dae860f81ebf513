"""What a topic may be told, and within which bounds.

Settings belong to the topic and are stored with it, as those of a queue are. What must not break: the number
of partitions stands, for a key is always in the same one.
"""

from dataclasses import dataclass
from datetime import timedelta

from cassq.errors import InvalidOptionError
from cassq.limits import BODY_BYTES_CEILING, KIB, MIB
from cassq.model.arguments import tell_duration
from cassq.model.stored_settings import StoredSettings, check_setting, setting

#: A segment is so old at least before it is closed for its age.
SEGMENT_AGE_MIN = timedelta(minutes=1)

#: Of a topic that keeps its messages for ever, a segment is closed when it is so old.
SEGMENT_AGE = timedelta(days=1)

#: What a retention by age is cut into: so much too long a message is kept at most.
_PARTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings(StoredSettings):
    """The settings of one topic; every one has a default, a range and a unit.

    Raises:
        InvalidOptionError: a value has the wrong type or is out of range, or two contradict each other.
    """

    OF = "topic"

    partitions: int = setting(1, 1, 1024, "ordered logs that messages are spread over", is_fixed=True)
    retention: timedelta = setting(
        timedelta(0),
        timedelta(0),
        timedelta(days=36_500),
        "how long a message is kept, by whole segments; 0 s: for ever",
    )
    retention_bytes: int = setting(
        0, 0, 2**60, "bytes of bodies that each partition keeps, whatever their age; 0: without a bound"
    )
    segment_bytes: int = setting(32 * MIB, KIB, 64 * MIB, "bytes of bodies in one segment")
    body_bytes_max: int = setting(1 * MIB, 1, BODY_BYTES_CEILING, "bytes of one body")
    clock_skew_max: timedelta = setting(
        timedelta(milliseconds=500),
        timedelta(0),
        timedelta(minutes=5),
        "how far the clocks of two database nodes may differ",
        is_fixed=True,
    )

    def __post_init__(self) -> None:
        for each in self.known():
            check_setting(each, getattr(self, each.name))
        if timedelta(0) < self.retention < SEGMENT_AGE_MIN:
            raise InvalidOptionError(
                f"retention={tell_duration(self.retention)} is shorter than the age of a segment: "
                f"{tell_duration(SEGMENT_AGE_MIN)} or more, or 0s for messages that are kept for ever"
            )

    @property
    def segment_age(self) -> timedelta:
        """How old a segment gets before it is closed, so that retention may delete it."""
        return max(SEGMENT_AGE_MIN, self.retention / _PARTS) if self.retention else SEGMENT_AGE
