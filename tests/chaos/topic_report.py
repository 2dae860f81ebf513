"""What came out of a run with a topic, as a table.

Owns the columns. What must not break: as in `chaos_report`.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from chaos_report import Report
from topic_reckoning import FINDINGS

_TITLES = (
    "strikes",
    "messages",
    *FINDINGS,
    "unknown publishes",
    "handed out again",
    "no publish for",
    "promises",
)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """One fault's.

    Attributes:
        fault, words, skipped, broken: see `chaos_report.Result`.
        messages: how many the log has.
        findings: how many of each kind were found.
        again: what members were handed out after the first time, by the reason for it.
        unknown, refused: publishes that ended so.
        gap_s: the longest time after the first blow in which no publish returned.
        struck: of a mix, how often each kind struck.
    """

    fault: str
    words: str
    skipped: str = ""
    messages: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    again: dict[str, int] = field(default_factory=dict)
    unknown: int = 0
    refused: int = 0
    gap_s: float = 0.0
    struck: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def cells(self) -> list[str]:
        """Return its row of the table."""
        if self.skipped:
            return [f"`{self.fault}`: {self.words}", f"skipped: {self.skipped}", *[""] * (len(_TITLES) - 2)]
        struck = ", ".join(f"{count} {name}" for name, count in sorted(self.struck.items()))
        return [
            f"`{self.fault}`: {self.words}{f' ({struck})' if struck else ''}",
            str(self.messages),
            *(str(self.findings.get(kind, 0)) for kind in FINDINGS),
            str(self.unknown),
            ", ".join(f"{count} {reason}" for reason, count in sorted(self.again.items())) or "none",
            f"{self.gap_s:.1f} s",
            "BROKEN" if self.broken else "kept",
        ]


class TopicReport(Report):
    """A whole run's."""

    TITLES: ClassVar = _TITLES
    RESULT: ClassVar = TopicResult
    MARK: ClassVar = "topics"

    def head(self) -> str:
        """Return one line on what was run."""
        setup = self.setup
        return (
            f"{self.servers()}; ZooKeeper session {setup['session']:g} s, lease {setup['lease']:g} s; "
            f"{setup['partitions']} partitions, {setup['publishers']} publishers ({setup['writers']} with "
            f"numbers) with {setup['rate']:g} messages/s in all, {setup['readers']} readers, "
            f"{setup['groups']} groups of {setup['members']}, {setup['queues']} subscribed queues with "
            f"{setup['relays']} relays and {setup['poppers']} poppers each, 1 reaper; seed {setup['seed']}"
        )

    def summary(self) -> str:
        """Return one line on all of them."""
        done = [each for each in self.results if not each.skipped]
        found = ", ".join(f"{sum(each.findings.get(kind, 0) for each in done)} {kind}" for kind in FINDINGS)
        return (
            f"{len(done)} kinds of strikes, {sum(each.messages for each in done)} messages: {found}; "
            f"{sum(bool(each.broken) for each in done)} with something broken, "
            f"{len(self.results) - len(done)} skipped"
        )
