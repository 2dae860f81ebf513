"""What one check of `cassq doctor` found.

Owns the four levels.
"""

from dataclasses import asdict, dataclass
from enum import Enum


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    HINT = "hint"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: its name; stable, for programs.
        told: what was found.
        way_out: what to do about it; empty when there is nothing to do.
    """

    check: str
    level: Level
    told: str
    way_out: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the finding as JSON values."""
        return {**asdict(self), "level": self.level.value}
