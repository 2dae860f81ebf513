"""What came out of a run, as JSON and as a table for people.

Owns the form of both. Refuses to measure. What must not break: the table says nothing that the JSON does not,
so that it can be made again.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

_TITLES = (
    "fault",
    "messages",
    "lost",
    "unexplained duplicates",
    "out of order",
    "rate is back after",
    "no commit for",
    "delivered again",
    "last of them after",
    "goal",
)


@dataclass(frozen=True, slots=True)
class Result:
    """One fault's.

    Attributes:
        fault, words: its name, and what was done.
        skipped: why it was not tried; empty when it was.
        messages: how many were committed, each counted once.
        lost, unexplained, reordered: how many the checker found.
        refused, unknown: pushes that said they did not happen, and those of which nobody knew.
        explained: deliveries after the first, by the reason for them.
        rate: commits a second before the fault.
        back_s, gap_s: see `pace.Pace`.
        again_s: from a blow until the last message that was delivered again because of it; 0 when none was.
        goal_s: what `back_s` should not exceed; None where that was not asked.
        broken: in words, whatever is not as it was promised; empty is good.
    """

    fault: str
    words: str
    skipped: str = ""
    messages: int = 0
    lost: int = 0
    unexplained: int = 0
    reordered: int = 0
    refused: int = 0
    unknown: int = 0
    explained: dict[str, int] = field(default_factory=dict)
    rate: float = 0.0
    back_s: float | None = None
    gap_s: float = 0.0
    again_s: float = 0.0
    goal_s: float | None = None
    broken: list[str] = field(default_factory=list)

    @property
    def is_met(self) -> bool:
        """Whether the rate was back in time."""
        return self.goal_s is None or (self.back_s is not None and self.back_s <= self.goal_s)

    def cells(self) -> list[str]:
        """Return its row of the table."""
        if self.skipped:
            return [f"`{self.fault}`: {self.words}", f"skipped: {self.skipped}", *[""] * (len(_TITLES) - 2)]
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self.explained.items()))
        back, goal = "not seen", "met" if self.is_met else "missed"
        if self.back_s is not None:
            back = f"{self.back_s:.1f} s" if self.back_s else "no dip"
        if self.goal_s is None:
            back = goal = ""
        return [
            f"`{self.fault}`: {self.words}",
            str(self.messages),
            str(self.lost),
            str(self.unexplained),
            str(self.reordered),
            back,
            f"{self.gap_s:.1f} s",
            reasons or "none",
            f"{self.again_s:.1f} s" if reasons else "",
            "BROKEN" if self.broken else goal,
        ]


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run's.

    Attributes:
        setup: versions, servers, load and limits.
        results: in the order in which they came.
        TITLES, RESULT: of the table's columns, and what its rows are made of.
        MARK: how a page marks the place of the table.
    """

    TITLES: ClassVar = _TITLES
    RESULT: ClassVar = Result
    MARK: ClassVar = "chaos"

    setup: dict[str, Any]
    results: list[Any]

    def head(self) -> str:
        """Return one line on what was run."""
        setup = self.setup
        return (
            f"{self.servers()}; lease {setup['lease']:g} s, ZooKeeper session {setup['session']:g} s, "
            f"push_age_max {setup['push_age_max']:g} s, push_grace {setup['push_grace']:g} s; "
            f"{setup['pushers']} pushers with {setup['rate']:g} messages/s in all, "
            f"{setup['poppers']} poppers, 1 reaper; seed {setup['seed']}"
        )

    def servers(self) -> str:
        """Return what is run on."""
        setup = self.setup
        return (
            f"cassq {setup['cassq']}, Cassandra {setup['cassandra']} (3 nodes, replication "
            f"{setup['replication']}), ZooKeeper {setup['zookeeper']} (3 servers), Python {setup['python']}, "
            f"{setup['cores']} cores"
        )

    def table(self) -> str:
        """Return the results as a table in Markdown."""
        lines = [list(self.TITLES), ["---"] * len(self.TITLES), *(each.cells() for each in self.results)]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

    def put_into(self, page: Path) -> None:
        """Write head and table into a page, between the lines that mark their place."""
        first, last = (f"<!-- {self.MARK}: {word} -->" for word in ("begin", "end"))
        before, begin, rest = page.read_text("utf-8").partition(f"{first}\n")
        _, end, after = rest.partition(last)
        if not begin or not end:
            raise ValueError(f"{page} has no place for the table, between {first} and {last}")
        page.write_text(f"{before}{begin}\n{self.head()}\n\n{self.table()}\n\n{end}{after}", "utf-8")

    def summary(self) -> str:
        """Return one line on all of them."""
        done = [each for each in self.results if not each.skipped]
        missed = sum(not each.is_met for each in done)
        broken = sum(bool(each.broken) for each in done)
        return (
            f"{len(done)} faults, {sum(each.messages for each in done)} messages, "
            f"{sum(each.lost for each in done)} lost, {sum(each.unexplained for each in done)} unexplained "
            f"duplicates, {sum(each.reordered for each in done)} out of order; {broken} with something "
            f"broken, {missed} back later than the goal, {len(self.results) - len(done)} skipped"
        )

    def complaints(self) -> list[str]:
        """Return what was broken, fault by fault."""
        return [f"{each.fault}: {what}" for each in self.results for what in each.broken]

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        results = [asdict(each) for each in self.results]
        path.write_text(json.dumps({"setup": self.setup, "results": results}, indent=1) + "\n")


def read_report(path: Path, kind: type[Report] = Report) -> Report:
    """Read what `Report.write` wrote."""
    told = json.loads(path.read_text())
    return kind(told["setup"], [kind.RESULT(**each) for each in told["results"]])
