"""What a command tells: a settings line, tables, and the raw figures as JSON beside them.

Owns how figures are written. Refuses to judge them: a table has facts and no praise. The rule: whatever a
table shows can be found again in the JSON, so that a page can be made from it later.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from _bench.measuring.compare import Figures


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Return it as Markdown whose columns line up on a terminal too."""
        lines = [list(self.columns), *map(list, self.rows)]
        widths = [max(len(line[n]) for line in lines) for n in range(len(self.columns))]
        told = [
            " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
        ]
        rule = " | ".join("-" * max(3, width) for width in widths)
        return "\n".join(f"| {line} |" for line in [told[0], rule, *told[1:]])


@dataclass(frozen=True, slots=True)
class Report:
    """What one run of a command found.

    Attributes:
        command: its name, such as "throughput".
        settings: what it ran on and with, in the order in which it is told.
        tables: for people.
        raw: for programs: all figures of all rounds; what `json` can write.
    """

    command: str
    settings: Mapping[str, str]
    tables: Sequence[Table]
    raw: Mapping[str, Any] = field(default_factory=dict)

    def settings_line(self) -> str:
        """Return the settings as one line."""
        return "; ".join(f"{name} {value}" for name, value in self.settings.items())

    def text(self) -> str:
        """Return the tables as Markdown."""
        return "\n\n".join(f"**{table.title}**\n\n{table.text()}" for table in self.tables)

    def tell(self, path: Path | None) -> None:
        """Print the tables, and write the JSON where a path is given; the settings were printed before."""
        print(self.text())
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
            print(f"raw figures: {path}", file=sys.stderr)


def read_report(path: Path) -> Report:
    """Read what `Report.tell` wrote."""
    found = json.loads(path.read_text("utf-8"))
    tables = [Table(**each) for each in found["tables"]]
    return Report(found["command"], found["settings"], tables, found["raw"])


def tell_number(value: float) -> str:
    """Return a number with three digits that matter, or four: 231 k, 4071, 91.2, 0.613; a count as it is."""
    if abs(value) >= 1e6:
        return f"{_three_digits(value / 1e6)} M"
    if abs(value) >= 1e4:
        return f"{_three_digits(value / 1e3)} k"
    if isinstance(value, int) or not value:
        return f"{value:.0f}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:.{digits}f}"


def tell_figures(figures: Figures, unit: str = "") -> str:
    """Return the median with its range: 231 k/s (210 k to 244 k)."""
    told = f"{tell_number(figures.median)}{unit}"
    if len(figures.values) == 1:
        return told
    return f"{told} ({tell_number(figures.low)} to {tell_number(figures.high)})"


def tell_ratio(figures: Figures) -> str:
    """Return a ratio with its range: 0.71 (0.64 to 0.80)."""
    if len(figures.values) == 1:
        return f"{figures.median:.2f}"
    return f"{figures.median:.2f} ({figures.low:.2f} to {figures.high:.2f})"


def raw_figures(figures: Mapping[str, Figures]) -> dict[str, list[float]]:
    """Return figures as JSON can hold them."""
    return {name: list(each.values) for name, each in figures.items()}
