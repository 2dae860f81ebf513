"""What a queue may be told, and within which bounds.

Settings belong to the queue, not to whoever opens it: pushers, poppers and reapers in other processes
count on the same ages and leases. So they are stored with it, and opening it with other ones is an error.

What must not break: by the ages of pushes, processes judge each other. So these stand for as long as the
queue does: what a pusher tells as stored by the old ones, a reaper may have cut off by the new ones. A lease
stands in each run, so it may be altered; what is leased keeps the one it has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Literal, Self

from cassq.errors import DecodeError, InvalidOptionError
from cassq.limits import BODY_BYTES_CEILING, KIB, MIB, SLOTS_MAX
from cassq.model.arguments import tell_duration
from cassq.model.ids import shorten

_MILLISECOND = timedelta(milliseconds=1)

#: A message that came back may rest for so long.
DELAY_MAX = timedelta(days=7)

#: A time-to-live is no shorter than a window and a popper's reading ahead may take, and no longer than this.
TTL_MIN = timedelta(seconds=1)
TTL_MAX = timedelta(days=3650)

_Value = int | timedelta | str


def _setting(default: _Value, low: _Value, high: _Value, meaning: str, *, is_fixed: bool = False) -> Any:  # noqa: ANN401
    return field(
        default=default, metadata={"low": low, "high": high, "meaning": meaning, "is_fixed": is_fixed}
    )


def _choice(default: str, *others: str, meaning: str) -> Any:  # noqa: ANN401
    return field(
        default=default, metadata={"choices": (default, *others), "meaning": meaning, "is_fixed": False}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The settings of one queue; every one has a default, a range and a unit.

    `others` is no setting: it keeps, as they are stored, those that only a newer version of cassq knows.

    Raises:
        InvalidOptionError: a value has the wrong type or is out of range, or two contradict each other.
    """

    pipe_messages_max: int = _setting(10_000, 1, 1_000_000, "messages in one pipe")
    pipe_bytes_max: int = _setting(64 * MIB, KIB, 512 * MIB, "bytes of bodies in one pipe")
    push_age_max: timedelta = _setting(
        timedelta(seconds=60),
        timedelta(milliseconds=100),
        timedelta(hours=1),
        "how long a pipe takes pushes",
        is_fixed=True,
    )
    push_grace: timedelta = _setting(
        timedelta(seconds=20),
        timedelta(milliseconds=100),
        timedelta(hours=1),
        "how long after push_age_max a silent pusher counts as dead",
        is_fixed=True,
    )
    lease: timedelta = _setting(
        timedelta(seconds=30),
        timedelta(milliseconds=100),
        timedelta(hours=12),
        "how long a popped message stays pending without a commit",
    )
    clock_skew_max: timedelta = _setting(
        timedelta(milliseconds=500),
        timedelta(0),
        timedelta(minutes=5),
        "how far the clocks of two database nodes may differ",
        is_fixed=True,
    )
    pop_width: int = _setting(8, 1, 256, "pipes one popper claims side by side")
    push_width: int = _setting(1, 1, 64, "pipes one pusher fills side by side")
    max_attempts: int = _setting(5, 1, 1_000_000, "deliveries before a message is a dead letter")
    body_bytes_max: int = _setting(1 * MIB, 1, BODY_BYTES_CEILING, "bytes of one body")
    retry_delay: timedelta = _setting(
        timedelta(seconds=1), timedelta(0), DELAY_MAX, "how long a message rests after its first failure"
    )
    retry_factor_percent: int = _setting(200, 100, 1000, "each further rest, of the one before")
    retry_delay_max: timedelta = _setting(
        timedelta(minutes=10), timedelta(0), DELAY_MAX, "how long it rests at most, without jitter"
    )
    retry_jitter_percent: int = _setting(20, 0, 100, "how much a rest is longer or shorter, by chance")
    ttl: timedelta = _setting(
        timedelta(0), timedelta(0), TTL_MAX, "how long a message may wait for its consumer; 0 s: for ever"
    )
    on_expired: Literal["drop", "dead"] = _choice(
        "drop", "dead", meaning="what becomes of a message that waited for longer: nothing, or a dead letter"
    )
    ageing: timedelta = _setting(
        timedelta(minutes=1),
        timedelta(0),
        timedelta(days=1),
        "how much earlier a message came that goes before one of the next higher priority; 0 s: never",
    )
    key_slots: int = _setting(
        16,
        1,
        SLOTS_MAX,
        "slots that keys are spread over; one process at a time takes from each",
        is_fixed=True,
    )
    keys: Literal["ordered", "exclusive"] = _choice(
        "ordered",
        "exclusive",
        meaning="whether a message waits for all earlier ones of its key, or not for those that rest",
    )
    others: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for setting in settings_known():
            _check(setting, getattr(self, setting.name))
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

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """Make settings from keyword options, naming the first that is unknown.

        Raises:
            InvalidOptionError: an option is unknown, of the wrong type or out of range.
        """
        _check_known(options)
        return cls(**options)  # type: ignore[arg-type]  # __post_init__ checks every value

    def check_same(self, queue: str, options: Mapping[str, object]) -> None:
        """Check that the options somebody named are the ones that the queue has.

        Raises:
            InvalidOptionError: some differ; the message names them all, and how to alter them.
        """
        _check_known(options)
        for setting in settings_known():
            if setting.name in options:
                _check(setting, options[setting.name])
        others = {name: wanted for name, wanted in options.items() if wanted != getattr(self, name)}
        if others:
            told = ", ".join(
                f"{name}={tell_setting(getattr(self, name))}, not {tell_setting(wanted)}"
                for name, wanted in others.items()
            )
            fixed = others.keys() & fixed_settings()
            way_out = (
                f"{_listed(fixed)} cannot be altered: delete the queue and create it anew"
                if fixed
                else f"alter them by store.alter_queue({queue!r}, …) or `cassq queue alter {queue}`"
            )
            raise InvalidOptionError(
                f"queue {queue!r} has {told}: open it without {_listed(others)}; {way_out}"
            )

    def altered(self, queue: str, options: Mapping[str, object]) -> Self:
        """Return the settings with other values for some.

        Raises:
            InvalidOptionError: an option is unknown, out of range, or cannot be altered.
        """
        _check_known(options)
        fixed = {name for name in fixed_settings() & options.keys() if options[name] != getattr(self, name)}
        if fixed:
            raise InvalidOptionError(
                f"{_listed(fixed)} of queue {queue!r} cannot be altered, as processes that have not "
                "heard of it yet would go by the old value: delete the queue and create it anew"
            )
        return replace(self, **options)  # type: ignore[arg-type]  # __post_init__ checks every value

    def to_stored(self) -> dict[str, int]:
        """Return the settings as integers, as they are stored: durations in milliseconds, words by number."""
        return {
            _stored_name(setting): _to_int(setting, getattr(self, setting.name))
            for setting in settings_known()
        } | dict(self.others)

    def to_json(self) -> dict[str, int | str]:
        """Return the settings under the names that they are stored by, words as `Store.queue` takes them."""
        words = {
            each.name: getattr(self, each.name) for each in settings_known() if "choices" in each.metadata
        }
        return self.to_stored() | words

    @classmethod
    def from_stored(cls, stored: Mapping[str, int]) -> Self:
        """Read settings back; those that an older version did not know get their default.

        Those that only a newer version knows are kept: who changes the record writes them, too.

        Raises:
            DecodeError: a stored value is not one that this version would have stored.
        """
        if not isinstance(stored, Mapping):
            raise DecodeError(f"stored queue settings are a mapping, not {shorten(stored)}")
        settings: dict[str, Any] = {}
        others = dict(stored)
        try:
            for setting in settings_known():
                name = _stored_name(setting)
                if name in stored:
                    settings[setting.name] = _from_stored(setting, others.pop(name))
            return replace(cls(), **settings, others=others)
        except (InvalidOptionError, TypeError) as error:
            raise DecodeError(f"stored queue settings are not valid: {error}") from error


def settings_known() -> list[Field[Any]]:
    """Return the settings that this version knows, each with its default, bounds and meaning."""
    return [setting for setting in fields(QueueSettings) if setting.metadata]


def fixed_settings() -> frozenset[str]:
    """Return the names of the settings that stand for as long as the queue does."""
    return frozenset(setting.name for setting in settings_known() if setting.metadata["is_fixed"])


def _check_known(options: Iterable[str]) -> None:
    known = {setting.name for setting in settings_known()}
    for name in options:
        if name not in known:
            raise InvalidOptionError(
                f"{shorten(name)} is not a setting of a queue; the settings are {_listed(known)}"
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _stored_name(setting: Field[Any]) -> str:
    return f"{setting.name}_ms" if isinstance(setting.default, timedelta) else setting.name


def _from_stored(setting: Field[Any], value: object) -> _Value:
    name, choices = _stored_name(setting), setting.metadata.get("choices")
    if type(value) is not int:
        raise TypeError(f"{name}={shorten(value)} is not a whole number")
    try:
        if choices:
            return str(dict(enumerate(choices))[value])
        return value * _MILLISECOND if isinstance(setting.default, timedelta) else value
    except (OverflowError, KeyError):
        raise TypeError(f"{name}={shorten(value)} is out of range") from None


def _check(setting: Field[Any], value: Any) -> None:  # noqa: ANN401 - whatever a caller hands in
    name, bounds, kind = setting.name, setting.metadata, type(setting.default)
    if choices := bounds.get("choices"):
        if type(value) is not str or value not in choices:
            known = " or ".join(map(repr, choices))
            raise InvalidOptionError(f"{name}={shorten(value)} must be {known} ({bounds['meaning']})")
    elif type(value) is not kind:
        article = "a timedelta" if kind is timedelta else "an int"
        raise InvalidOptionError(
            f"{name}={shorten(value)} must be {article}, not {type(value).__name__} ({bounds['meaning']})"
        )
    elif not bounds["low"] <= value <= bounds["high"]:
        raise InvalidOptionError(
            f"{name}={tell_setting(value)} is out of range: "
            f"{tell_setting(bounds['low'])} to {tell_setting(bounds['high'])} ({bounds['meaning']})"
        )
    if isinstance(value, timedelta) and value % _MILLISECOND:
        # It would be stored as another value, and differ from it at the next opening.
        raise InvalidOptionError(
            f"{name}={tell_setting(value)} must be whole milliseconds ({bounds['meaning']})"
        )


def _to_int(setting: Field[Any], value: Any) -> int:  # noqa: ANN401 - what `_check` has checked
    if choices := setting.metadata.get("choices"):
        return int(choices.index(value))
    return value // _MILLISECOND if isinstance(value, timedelta) else value


def tell_setting(value: object) -> str:
    """Return a value for people to read: a duration with its unit."""
    return tell_duration(value) if isinstance(value, timedelta) else shorten(value)
