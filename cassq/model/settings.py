"""What a queue may be told, and within which bounds.

Settings belong to the queue, not to whoever opens it: pushers, poppers and reapers in other processes
count on the same ages and leases. So they are stored with it, and opening it with other ones is an error.

What must not break: by the ages of pushes, processes judge each other. So these stand for as long as the
queue does: what a pusher tells as stored by the old ones, a reaper may have cut off by the new ones. A lease
stands in each run, so it may be altered; what is leased keeps the one it has.
"""

from dataclasses import Field, dataclass
from datetime import timedelta
from typing import Any, Literal

from cassq.errors import InvalidOptionError
from cassq.limits import BODY_BYTES_CEILING, KIB, MIB, SLOTS_MAX
from cassq.model.arguments import tell_duration
from cassq.model.stored_settings import StoredSettings, check_setting, choice, setting

#: A message that came back may rest for so long.
DELAY_MAX = timedelta(days=7)

#: A time-to-live is no shorter than a window and a popper's reading ahead may take, and no longer than this.
TTL_MIN = timedelta(seconds=1)
TTL_MAX = timedelta(days=3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(StoredSettings):
    """The settings of one queue; every one has a default, a range and a unit.

    `others` is no setting: it keeps, as they are stored, those that only a newer version of cassq knows.

    Raises:
        InvalidOptionError: a value has the wrong type or is out of range, or two contradict each other.
    """

    OF = "queue"

    pipe_messages_max: int = setting(10_000, 1, 1_000_000, "messages in one pipe")
    pipe_bytes_max: int = setting(64 * MIB, KIB, 512 * MIB, "bytes of bodies in one pipe")
    push_age_max: timedelta = setting(
        timedelta(seconds=60),
        timedelta(milliseconds=100),
        timedelta(hours=1),
        "how long a pipe takes pushes",
        is_fixed=True,
    )
    push_grace: timedelta = setting(
        timedelta(seconds=20),
        timedelta(milliseconds=100),
        timedelta(hours=1),
        "how long after push_age_max a silent pusher counts as dead",
        is_fixed=True,
    )
    lease: timedelta = setting(
        timedelta(seconds=30),
        timedelta(milliseconds=100),
        timedelta(hours=12),
        "how long a popped message stays pending without a commit",
    )
    clock_skew_max: timedelta = setting(
        timedelta(milliseconds=500),
        timedelta(0),
        timedelta(minutes=5),
        "how far the clocks of two database nodes may differ",
        is_fixed=True,
    )
    pop_width: int = setting(8, 1, 256, "pipes one popper claims side by side")
    push_width: int = setting(1, 1, 64, "pipes one pusher fills side by side")
    max_attempts: int = setting(5, 1, 1_000_000, "deliveries before a message is a dead letter")
    body_bytes_max: int = setting(1 * MIB, 1, BODY_BYTES_CEILING, "bytes of one body")
    retry_delay: timedelta = setting(
        timedelta(seconds=1), timedelta(0), DELAY_MAX, "how long a message rests after its first failure"
    )
    retry_factor_percent: int = setting(200, 100, 1000, "each further rest, of the one before")
    retry_delay_max: timedelta = setting(
        timedelta(minutes=10), timedelta(0), DELAY_MAX, "how long it rests at most, without jitter"
    )
    retry_jitter_percent: int = setting(20, 0, 100, "how much a rest is longer or shorter, by chance")
    ttl: timedelta = setting(
        timedelta(0), timedelta(0), TTL_MAX, "how long a message may wait for its consumer; 0 s: for ever"
    )
    on_expired: Literal["drop", "dead"] = choice(
        "drop", "dead", meaning="what becomes of a message that waited for longer: nothing, or a dead letter"
    )
    ageing: timedelta = setting(
        timedelta(minutes=1),
        timedelta(0),
        timedelta(days=1),
        "how much earlier a message came that goes before one of the next higher priority; 0 s: never",
    )
    key_slots: int = setting(
        16,
        1,
        SLOTS_MAX,
        "slots that keys are spread over; one process at a time takes from each",
        is_fixed=True,
    )
    keys: Literal["ordered", "exclusive"] = choice(
        "ordered",
        "exclusive",
        meaning="whether a message waits for all earlier ones of its key, or not for those that rest",
    )
    journal: Literal["off", "outline", "headers"] = choice(
        "off",
        "outline",
        "headers",
        meaning="what the journal keeps of a pipe: nothing, how all in it ended, or the headers, too",
    )

    def __post_init__(self) -> None:
        for each in settings_known():
            check_setting(each, getattr(self, each.name))
        if self.body_bytes_max > self.pipe_bytes_max:
            raise InvalidOptionError(
                f"body_bytes_max={self.body_bytes_max} is larger than "
                f"pipe_bytes_max={self.pipe_bytes_max}: raise pipe_bytes_max"
            )
        if timedelta(0) < self.ttl < TTL_MIN:
            raise InvalidOptionError(
                f"ttl={tell_duration(self.ttl)} is out of range: {tell_duration(TTL_MIN)} to "
                f"{tell_duration(TTL_MAX)}, or 0s for messages that never expire"
            )
        if self.retry_delay > self.retry_delay_max:
            raise InvalidOptionError(
                f"retry_delay={tell_duration(self.retry_delay)} is longer than "
                f"retry_delay_max={tell_duration(self.retry_delay_max)}: raise retry_delay_max"
            )


def settings_known() -> list[Field[Any]]:
    """Return the settings that this version knows, each with its default, bounds and meaning."""
    return QueueSettings.known()


def fixed_settings() -> frozenset[str]:
    """Return the names of the settings that stand for as long as the queue does."""
    return QueueSettings.fixed()
