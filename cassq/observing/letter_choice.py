"""Which dead letters an operator means.

Owns the rule for each word of it; all have to fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Protocol


class Letter(Protocol):
    """What is asked of a dead letter."""

    @property
    def reason(self) -> str:
        """Why it was given up."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Its message's headers."""
        ...

    @property
    def died_at(self) -> datetime:
        """When it was given up."""
        ...


@dataclass(frozen=True, slots=True)
class LetterChoice:
    """Those that fit.

    Attributes:
        reason: a shell pattern.
        headers: that it has, with these values.
        died_by: when at the latest it died.
    """

    reason: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    died_by: datetime | None = None

    def __call__(self, letter: Letter) -> bool:
        """Tell whether a letter is meant."""
        return (
            (self.reason is None or fnmatchcase(letter.reason, self.reason))
            and all(letter.headers.get(name) == value for name, value in self.headers.items())
            and (self.died_by is None or letter.died_at <= self.died_by)
        )
