"""How the docstrings of cassq become sections of the API reference.

Owns the two forms that the parser of docstrings does not know: a section on one line (`Raises: as push.`),
which becomes a paragraph, and one line for several names (`pushed, popped: totals.`), which becomes one for
each. It leaves out the arguments of classes, for cassq makes their objects itself. What must not break: no
other word of a docstring is left out.
"""

import re
from typing import Any

import griffe

_SHORT_SECTION = re.compile(
    r"^(Returns|Raises|Guarantees|Idempotent|After an error): *(\S.*(?:\n(?!\n)(?:  +.*))*)", re.MULTILINE
)
_SHARED_LINE = re.compile(r"^(    )((?:\*{0,2}\w+, )+\w+)(: .*(?:\n {5,}.*)*)", re.MULTILINE)
_CLASS_ARGUMENTS = re.compile(r"^Args:\n(?: +.*\n|\n(?= ))*(?: +.*)?", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Brings docstrings into the form that the parser knows."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:  # noqa: ANN401
        """Rewrite the docstring of a module, class, function or attribute as it is loaded."""
        if obj.docstring:
            text = obj.docstring.value
            obj.docstring.value = in_form(_CLASS_ARGUMENTS.sub("", text) if obj.is_class else text)


def in_form(text: str) -> str:
    """Return a docstring as the parser of Google's style reads it."""
    text = _SHORT_SECTION.sub(lambda found: f"\n**{found[1]}:** {_on_one_line(found[2])}\n", text)
    return _SHARED_LINE.sub(_one_for_each, text)


def _on_one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())


def _one_for_each(found: re.Match[str]) -> str:
    indent, names, words = found.groups()
    return "\n".join(f"{indent}{name}{words}" for name in names.split(", "))
