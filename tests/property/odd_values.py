"""Values that nobody should hand in, and what a refusal of them must say.

Owns two things: the strategies of odd values, and `refused`, which looks at the words of an error. What must
not break: an error of another kind than the one that is expected is never taken for a refusal.
"""

from collections.abc import Callable
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

#: No error is longer than this, whatever the value was.
WORDS_MAX = 1500


class Mute:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("nobody may look at this")

    __str__ = __repr__

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: object) -> None:
        """Show it to Hypothesis alone, whose report would be lost otherwise."""
        del cycle
        printer.text("Mute()")


# By their parts: Hypothesis shows strategies, and warns of one that is long to show.
_PARTS = [("x", 5000), ("\U0010ffff", 1500), ("9", 5000), ("[", 5000), ("\0", 300)]
LONG = st.sampled_from(_PARTS).map(lambda part: part[0] * part[1])

#: Any text: also what is no valid Unicode, digits of other scripts, and what is far too long.
TEXTS = st.text(st.characters()) | LONG | st.text("0123456789²٣:-.@/#?%& \n\t\0", max_size=40)

#: Any object.
OBJECTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.builds(lambda: 10**5000),
    st.floats(),
    TEXTS,
    st.binary(max_size=40),
    st.just(b"x" * 5000),
    st.timedeltas(),
    st.just(timedelta.max),
    st.just(timedelta(microseconds=1)),
    st.builds(Mute),
    st.lists(st.integers(), max_size=3),
    st.builds(lambda: list(range(20_000))),
    st.dictionaries(st.integers() | st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=3),
    st.tuples(st.integers(), st.builds(Mute)),
)


def refused(error: type[Exception], call: Callable[[], object]) -> str | None:
    """Return the words of the refusal, or None when the call was not refused at all."""
    try:
        call()
    except error as refusal:
        words = str(refusal)
        assert 0 < len(words) <= WORDS_MAX, f"{len(words)} characters"
        words.encode()  # it can be printed anywhere
        return words
    return None


def names(words: str, value: object) -> bool:
    """Tell whether an error shows the beginning of a value."""
    try:
        shown = repr(value)
    except Exception:
        return type(value).__name__ in words
    return shown[1:20] in words or shown[1 : min(20, len(shown) - 1)] in words
