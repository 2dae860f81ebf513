"""Settings that are stored with what they belong to: defaults, ranges, units, and how they are kept.

Owns the checks and the stored form of every kind of settings. Refuses to know any of them. What must not
break: what only a newer version knows is kept by whoever writes the record.
"""

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Self

from cassq.errors import DecodeError, InvalidOptionError
from cassq.model.arguments import tell_duration
from cassq.model.ids import shorten

_MILLISECOND = timedelta(milliseconds=1)

_Value = int | timedelta | str


def setting(default: _Value, low: _Value, high: _Value, meaning: str, *, is_fixed: bool = False) -> Any:  # noqa: ANN401
    """Return the field of a setting with bounds; a fixed one stands for as long as what it belongs to."""
    return field(
        default=default, metadata={"low": low, "high": high, "meaning": meaning, "is_fixed": is_fixed}
    )


def choice(default: str, *others: str, meaning: str) -> Any:  # noqa: ANN401
    """Return the field of a setting that is one of a few words."""
    return field(
        default=default, metadata={"choices": (default, *others), "meaning": meaning, "is_fixed": False}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSettings:
    """Settings of one kind of thing; every one has a default, a range and a unit.

    `others` is no setting: it keeps, as they are stored, those that only a newer version of cassq knows.

    Attributes:
        OF: what they are settings of, in one word.
    """

    OF = ""

    others: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def known(cls) -> list[Field[Any]]:
        """Return the settings that this version knows, each with its default, bounds and meaning."""
        return [each for each in fields(cls) if each.metadata]

    @classmethod
    def fixed(cls) -> frozenset[str]:
        """Return the names of the settings that stand for as long as what they belong to."""
        return frozenset(each.name for each in cls.known() if each.metadata["is_fixed"])

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """Make settings from keyword options, naming the first that is unknown.

        Raises:
            InvalidOptionError: an option is unknown, of the wrong type or out of range.
        """
        cls._check_known(options)
        return cls(**options)  # type: ignore[arg-type]  # __post_init__ checks every value

    def check_same(self, owner: str, options: Mapping[str, object]) -> None:
        """Check that the options somebody named are the ones that stand.

        Raises:
            InvalidOptionError: some differ; the message names them all, and how to alter them.
        """
        self._check_known(options)
        for each in self.known():
            if each.name in options:
                check_setting(each, options[each.name])
        others = {name: wanted for name, wanted in options.items() if wanted != getattr(self, name)}
        if others:
            told = ", ".join(
                f"{name}={tell_setting(getattr(self, name))}, not {tell_setting(wanted)}"
                for name, wanted in others.items()
            )
            fixed = others.keys() & self.fixed()
            way_out = (
                f"{_listed(fixed)} cannot be altered: delete the {self.OF} and create it anew"
                if fixed
                else f"alter them by store.alter_{self.OF}({owner!r}, …) or `cassq {self.OF} alter {owner}`"
            )
            raise InvalidOptionError(
                f"{self.OF} {owner!r} has {told}: open it without {_listed(others)}; {way_out}"
            )

    def altered(self, owner: str, options: Mapping[str, object]) -> Self:
        """Return the settings with other values for some.

        Raises:
            InvalidOptionError: an option is unknown, out of range, or cannot be altered.
        """
        self._check_known(options)
        fixed = {name for name in self.fixed() & options.keys() if options[name] != getattr(self, name)}
        if fixed:
            raise InvalidOptionError(
                f"{_listed(fixed)} of {self.OF} {owner!r} cannot be altered, as processes that have not "
                f"heard of it yet would go by the old value: delete the {self.OF} and create it anew"
            )
        return replace(self, **options)  # type: ignore[arg-type]  # __post_init__ checks every value

    def to_stored(self) -> dict[str, int]:
        """Return the settings as integers, as they are stored: durations in milliseconds, words by number."""
        return {_stored_name(each): _to_int(each, getattr(self, each.name)) for each in self.known()} | dict(
            self.others
        )

    def to_json(self) -> dict[str, int | str]:
        """Return the settings under the names that they are stored by, words as callers name them."""
        words = {each.name: getattr(self, each.name) for each in self.known() if "choices" in each.metadata}
        return self.to_stored() | words

    @classmethod
    def from_stored(cls, stored: Mapping[str, int]) -> Self:
        """Read settings back; those that an older version did not know get their default.

        Those that only a newer version knows are kept: who changes the record writes them, too.

        Raises:
            DecodeError: a stored value is not one that this version would have stored.
        """
        if not isinstance(stored, Mapping):
            raise DecodeError(f"stored {cls.OF} settings are a mapping, not {shorten(stored)}")
        settings: dict[str, Any] = {}
        others = dict(stored)
        try:
            for each in cls.known():
                name = _stored_name(each)
                if name in stored:
                    settings[each.name] = _from_stored(each, others.pop(name))
            return replace(cls(), **settings, others=others)
        except (InvalidOptionError, TypeError) as error:
            raise DecodeError(f"stored {cls.OF} settings are not valid: {error}") from error

    @classmethod
    def _check_known(cls, options: Iterable[str]) -> None:
        known = {each.name for each in cls.known()}
        for name in options:
            if name not in known:
                raise InvalidOptionError(
                    f"{shorten(name)} is not a setting of a {cls.OF}; the settings are {_listed(known)}"
                )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _stored_name(known: Field[Any]) -> str:
    return f"{known.name}_ms" if isinstance(known.default, timedelta) else known.name


def _from_stored(known: Field[Any], value: object) -> _Value:
    name, choices = _stored_name(known), known.metadata.get("choices")
    if type(value) is not int:
        raise TypeError(f"{name}={shorten(value)} is not a whole number")
    try:
        if choices:
            return str(dict(enumerate(choices))[value])
        return value * _MILLISECOND if isinstance(known.default, timedelta) else value
    except (OverflowError, KeyError):
        raise TypeError(f"{name}={shorten(value)} is out of range") from None


def check_setting(known: Field[Any], value: Any) -> None:  # noqa: ANN401 - whatever a caller hands in
    """Check one value.

    Raises: InvalidOptionError: it has the wrong type or is out of range.
    """
    name, bounds, kind = known.name, known.metadata, type(known.default)
    if choices := bounds.get("choices"):
        if type(value) is not str or value not in choices:
            words = " or ".join(map(repr, choices))
            raise InvalidOptionError(f"{name}={shorten(value)} must be {words} ({bounds['meaning']})")
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


def _to_int(known: Field[Any], value: Any) -> int:  # noqa: ANN401 - what `check_setting` has checked
    if choices := known.metadata.get("choices"):
        return int(choices.index(value))
    return value // _MILLISECOND if isinstance(value, timedelta) else value


def tell_setting(value: object) -> str:
    """Return a value for people to read: a duration with its unit."""
    return tell_duration(value) if isinstance(value, timedelta) else shorten(value)
