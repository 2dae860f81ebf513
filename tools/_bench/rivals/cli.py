"""cassq beside other queues and logs: pushing, popping and latency.

    tools/bench/rivals                           all of them
    tools/bench/rivals --only postgres,nats      these
    tools/bench/rivals --topics                  topics of cassq, beside other logs

Owns the command and its tables. Refuses to judge: a ratio is cassq's figure divided by the rival's. The rule:
one rival's server runs at a time, and a rival that cannot run spoils nothing but the exit code.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from _services.errors import ServicesError

from _bench.clients.cassq_clients import CassqOnCassandra
from _bench.clients.topic_clients import TopicOnCassandra
from _bench.errors import BenchError
from _bench.measuring.compare import progress, ratio
from _bench.measuring.settings_line import tell_settings
from _bench.options import EXIT_FAILED, add_store, choose, parser, run
from _bench.page.table import Report, Table, raw_figures, tell_figures, tell_ratio
from _bench.rivals.duel import LATENCIES, P50, P99, POP, PUSH, PUSH_EACH, REPLAY, Found, Load, fight
from _bench.rivals.roster import RIVALS, TOPIC_RIVALS, Rival
from _bench.servers import CassandraServer
from _bench.stage import staged

_LATENCY_TITLES = {P50: "Latency, p50, ms", P99: "Latency, p99, ms"}


@dataclass(frozen=True, slots=True)
class Field:
    """What is compared.

    Attributes:
        ours: makes cassq's side.
        titles: of the tables, by measure.
    """

    ours: Callable[[CassandraServer], CassqOnCassandra]
    rivals: Mapping[str, Rival]
    titles: Mapping[str, str]


_QUEUES = Field(
    CassqOnCassandra,
    RIVALS,
    {
        PUSH: "Push, confirmed, batched: messages/s",
        POP: "Pop and acknowledge, batched: messages/s",
        PUSH_EACH: "Push one by one, each confirmed before the next: messages/s",
        **_LATENCY_TITLES,
    },
)

_TOPICS = Field(
    TopicOnCassandra,
    TOPIC_RIVALS,
    {
        PUSH: "Publish, confirmed, batched: messages/s",
        POP: "Read as a member of a group, and commit: messages/s",
        REPLAY: "Replay by one reader, from the beginning: messages/s",
        PUSH_EACH: "Publish one by one, each confirmed before the next: messages/s",
        **_LATENCY_TITLES,
    },
)


@dataclass(frozen=True, slots=True)
class Line:
    """One rival and what was found about it and cassq."""

    name: str
    durability: str
    versions: Mapping[str, str]
    found: Found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = _options(arguments)
    field = _TOPICS if options.topics else _QUEUES
    names = _names(options.only, field)
    is_short = options.short
    load = Load(
        messages=choose(options.messages, 100_000, 2000, is_short=is_short),
        batch=options.batch,
        body_bytes=options.body,
        rate=options.rate,
        seconds=choose(options.seconds, 10, 1, is_short=is_short),
        rounds=choose(options.rounds, 5, 1, is_short=is_short),
        warm_s=0.0 if is_short else 5.0,
    )
    with staged(options) as stage:
        server = stage.server
        if server is None:
            raise BenchError("the rivals are measured beside a store on Cassandra")
        told = _told(load)
        settings = tell_settings(stage.told, told)
        lines = _fight_all(names, field, server, replace(load, folder=stage.folder))
    cassq = field.ours(server)
    figures = (_tabulate(field, measure, load, lines) for measure in field.titles)
    tables = [_contestants(cassq, lines), *figures]
    raw = {key: _raw(line) for key, line in lines.items()}
    Report("rivals", settings, [table for table in tables if table.rows], raw).tell(options.json)
    return 0 if len(lines) == len(names) else EXIT_FAILED


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = parser("rivals", "cassq beside other queues, in turn, each with its server on this machine.")
    add_store(made, has_sqlite=False)
    add = made.add_argument
    add("--topics", action="store_true", help=f"a topic, beside other logs: {', '.join(TOPIC_RIVALS)}")
    add("--only", metavar="A,B", help=f"of {', '.join(RIVALS)}, or of those logs")
    add("--messages", type=int, metavar="N", help="a batched run, at most (100000); slow rivals get fewer")
    add("--batch", type=int, default=200, metavar="N", help="messages a call (%(default)s)")
    add("--body", type=int, default=256, metavar="B", help="bytes (%(default)s)")
    add("--rate", type=float, default=1000.0, metavar="N", help="messages/s for the latency (%(default)g)")
    add("--seconds", type=int, metavar="S", help="that the latency is measured, each round (10)")
    return made.parse_args(arguments)


def _names(told: str | None, field: Field) -> list[str]:
    names = told.split(",") if told else list(field.rivals)
    for name in names:
        if name not in field.rivals:
            raise BenchError(f"{name!r} is not one of {', '.join(field.rivals)}")
    return names


def _told(load: Load) -> dict[str, str]:
    return {
        "clients": "one process pushes, one pops; for the latency cassq commits in groups of 5 ms",
        "body": f"{load.body_bytes} B",
        "batch": str(load.batch),
        "rate for the latency": f"{load.rate:g}/s for {load.seconds:g} s",
        "rounds": str(load.rounds),
    }


def _fight_all(names: Sequence[str], field: Field, server: CassandraServer, load: Load) -> dict[str, Line]:
    lines = {}
    with progress(len(names) * load.rounds * 2, "rivals") as bar:
        for key in names:
            bar.set_postfix_str(key)
            try:
                lines[key] = _fight_one(key, field, server, load, bar.update)
            except (BenchError, ServicesError) as error:
                print(f"bench: {key} is left out: {error}", file=sys.stderr)
    return lines


def _fight_one(
    key: str, field: Field, server: CassandraServer, load: Load, done: Callable[[], object]
) -> Line:
    rival = field.rivals[key]
    theirs = rival.make(server)
    with tempfile.TemporaryDirectory(prefix=f"{key}-", dir=load.folder) as place:
        try:
            theirs.start(Path(place))
            found = fight(field.ours(server), theirs, rival, load, done)
            return Line(theirs.name, theirs.durability, dict(theirs.versions()), found)
        finally:
            theirs.stop()


def _contestants(cassq: CassqOnCassandra, lines: Mapping[str, Line]) -> Table:
    rows = [(cassq.name, cassq.durability, "", "", "")]
    for line in lines.values():
        versions = ", ".join(f"{name} {version}" for name, version in line.versions.items())
        size = line.found.size
        rows.append((line.name, line.durability, versions, str(size.batched), str(size.single)))
    columns = ("", "a confirmed push survives", "versions", "messages a run, batched", "one by one")
    return Table("What is compared; each rival on one node", columns, rows)


def _tabulate(field: Field, measure: str, load: Load, lines: Mapping[str, Line]) -> Table:
    rows = []
    for line in lines.values():
        ours, theirs = line.found.ours.get(measure), line.found.theirs.get(measure)
        if ours and theirs:
            rows.append(
                (line.name, tell_figures(theirs), tell_figures(ours), tell_ratio(ratio(ours, theirs)))
            )
    title = field.titles[measure] + (f" at {load.rate:g} messages/s" if measure in LATENCIES else "")
    return Table(title, ("", "rival", "cassq in the same rounds", "cassq / rival"), rows)


def _raw(line: Line) -> dict[str, object]:
    return {
        "name": line.name,
        "durability": line.durability,
        "versions": dict(line.versions),
        "messages": {"batched": line.found.size.batched, "single": line.found.size.single},
        "cassq": raw_figures(line.found.ours),
        "rival": raw_figures(line.found.theirs),
    }


if __name__ == "__main__":
    sys.exit(run(main))
