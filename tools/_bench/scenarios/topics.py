"""Topics with many publishers, many readers, and a group whose members come and go.

    tools/bench/topics           64 publishers, 10 x 10 readers, a group of 4 over 8 partitions

Owns the crowds, each member of which is a process. Refuses to compare with other logs: `tools/bench/rivals
--topics` does. Clocks are one machine's.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from _bench.clients.bodies import steady
from _bench.clients.client_process import ClientProcess
from _bench.clients.topic_work import follow, hold_a_share, publish_on_time, publish_until
from _bench.measuring.percentiles import join
from _bench.measuring.settings_line import tell_settings
from _bench.options import Amount, add_store, parser, read_amounts, run
from _bench.page.table import Report, Table, tell_number
from _bench.stage import Stage, staged

_READY_S = 300.0
_LEAD_NS = 2_000_000_000
_REST_S = 20.0
_BATCH, _BODY_BYTES = 200, 256
_PARTITIONS, _MEMBERS = 8, 4
#: Messages a second in all partitions, while members come and go.
_GROUP_RATE = 400.0
#: So long the group is left alone before a member comes, and after; then one is killed.
_CALM_S = 6.0
#: A session of ZooKeeper that nobody renews ends after so long at the most; then others have its share.
_SESSION_S = 12.0

_AMOUNTS = (
    Amount("publishers", "N", "processes that publish into one partition", 64, 4),
    Amount("processes", "N", "that read", 10, 2),
    Amount("readers", "N", "in each of them", 10, 3),
    Amount("rate", "N", "messages a second, of all publishers together", 1000, 200),
    Amount("seconds", "S", "of each measurement", 20, 2),
)


def crowd(stage: Stage, options: argparse.Namespace) -> dict[str, float]:
    """Measure one publisher and many: at full speed, and at a steady rate in all."""
    with ExitStack() as openers:
        everybody = _open(openers, stage, "publisher", options.publishers)
        found = {}
        for count in (1, options.publishers):
            until_ns = time.monotonic_ns() + round(options.seconds * 1e9)
            for each in everybody[:count]:
                each.begin(publish_until, f"crowd-{count}", _BATCH, _BODY_BYTES, until_ns)
            published = sum(each.result() for each in everybody[:count])
            found[f"full_{count}_per_s"] = published / options.seconds
            begin_ns = time.monotonic_ns() + _LEAD_NS
            due_ns = steady(begin_ns, options.rate, options.seconds)
            for place, each in enumerate(everybody[:count]):
                each.begin(publish_on_time, f"steady-{count}", 1, due_ns[place::count])
            waits = join(each.result() for each in everybody[:count])
            found[f"steady_{count}_missing"] = float(len(due_ns) - waits.count)
            found |= {f"steady_{count}_p{percentile}_ms": waits.at_ms(percentile) for percentile in (50, 99)}
    return found


def subscribers(stage: Stage, options: argparse.Namespace) -> dict[str, float]:
    """Measure one reader, then many in each of several processes, while one publisher keeps to a rate."""
    found: dict[str, float] = {}
    with ExitStack() as openers:
        (publisher,) = _open(openers, stage, "publisher", 1)
        crew = _open(openers, stage, "reader", options.processes)
        publisher.run(publish_on_time, "read", 1, [])  # makes the topic
        for name, processes, readers in (
            ("one", crew[:1], 1),
            ("one_process", crew[:1], options.readers),
            ("all", crew, options.readers),
        ):
            begin_ns = time.monotonic_ns() + 2 * _LEAD_NS
            due_ns = steady(begin_ns, options.rate, options.seconds)
            until_ns = due_ns[-1] + round(_REST_S * 1e9)
            for each in processes:
                each.begin(follow, "read", readers, len(due_ns), until_ns)
            publisher.run(publish_on_time, "read", 1, due_ns)
            told = [each.result() for each in processes]
            waits = join(encoded for encoded, _, _ in told)
            found |= {f"{name}_p{percentile}_ms": waits.at_ms(percentile) for percentile in (50, 99)}
            wanted = len(due_ns) * readers * len(processes)
            found[f"{name}_missing"] = float(wanted - sum(had for _, had, _ in told))
            found[f"{name}_reads"] = float(sum(reads for _, _, reads in told))
    return found


def group(stage: Stage) -> dict[str, float]:
    """Let a member join a group, and kill one; measure how long their partitions were with nobody."""
    folder = Path(tempfile.mkdtemp(prefix="group-", dir=stage.folder))
    notes = [folder / f"notes-{place}" for place in range(_MEMBERS)]
    with ExitStack() as openers:
        (publisher,) = _open(openers, stage, "publisher", 1)
        members = _open(openers, stage, "member", _MEMBERS)
        publisher.run(publish_on_time, "group", _PARTITIONS, [])
        begin_ns = time.monotonic_ns() + _LEAD_NS
        seconds = 3 * _CALM_S + _SESSION_S
        until_ns = begin_ns + round(seconds * 1e9)
        publisher.begin(publish_on_time, "group", _PARTITIONS, steady(begin_ns, _GROUP_RATE, seconds))
        for member, path in zip(members[1:], notes[1:], strict=True):
            member.begin(hold_a_share, "group", _PARTITIONS, str(path), until_ns)
        _sleep_until(begin_ns + round(_CALM_S * 1e9))
        joined_ns = time.monotonic_ns()
        members[0].begin(hold_a_share, "group", _PARTITIONS, str(notes[0]), until_ns)
        _sleep_until(joined_ns + round(_CALM_S * 1e9))
        killed_ns = time.monotonic_ns()
        members[-1].kill()
        for each in (publisher, *members[:-1]):
            each.result()
    return judge([_read_notes(path) for path in notes], joined_ns, killed_ns)


def judge(notes: Sequence[Sequence[tuple[int, int]]], joined_ns: int, killed_ns: int) -> dict[str, float]:
    """Return how long it took until the first member had its share, and others that of the last one.

    Args:
        notes: of each member, the partition and the time of what it had.
    """
    joiner, *others, killed = notes
    mine = {partition for partition, at in joiner if at < killed_ns}
    first_of = {partition: min(at for found, at in joiner if found == partition) for partition in mine}
    orphans = {partition for partition, at in killed if at > killed_ns - 1_000_000_000}
    after = [(partition, at) for each in (joiner, *others) for partition, at in each if at > killed_ns]
    back_of = {
        partition: min((at for found, at in after if found == partition), default=0) for partition in orphans
    }
    pauses = [
        later - at
        for each in others
        for partition in {found for found, _ in each} - mine - orphans
        for at, later in pairwise(at for found, at in each if found == partition)
    ]
    return {
        "joiner_partitions": float(len(mine)),
        "joined_s": (max(first_of.values(), default=0) - joined_ns) / 1e9,
        "orphans": float(len(orphans)),
        "back_s": (max(back_of.values(), default=0) - killed_ns) / 1e9,
        "pause_ms": max(pauses, default=0) / 1e6,
    }


def _read_notes(path: Path) -> list[tuple[int, int]]:
    lines = (line.split() for line in path.read_bytes().split(b"\n")[:-1])
    return [(int(partition), int(at)) for partition, at in lines]


def _open(openers: ExitStack, stage: Stage, title: str, count: int) -> list[ClientProcess]:
    made = [openers.enter_context(ClientProcess(stage.opener, f"{title}-{n}")) for n in range(count)]
    for each in made:
        each.wait_ready(_READY_S)
    return made


def _sleep_until(at_ns: int) -> None:
    time.sleep(max(0.0, (at_ns - time.monotonic_ns()) / 1e9))


def tabulate(
    options: argparse.Namespace,
    crowds: Mapping[str, float],
    reading: Mapping[str, float],
    shares: Mapping[str, float],
) -> list[Table]:
    """Return what was found as tables."""
    many = options.publishers
    published = [
        (
            f"{count} publisher{'s' * (count > 1)}",
            f"{tell_number(crowds[f'full_{count}_per_s'])}/s",
            *(f"{tell_number(crowds[f'steady_{count}_p{each}_ms'])} ms" for each in (50, 99)),
            f"{crowds[f'steady_{count}_missing']:.0f}",
        )
        for count in (1, many)
    ]
    titles = {
        "one": "one reader",
        "one_process": f"{options.readers} readers in one process",
        "all": f"{options.readers} readers in each of {options.processes}",
    }
    read = [
        (
            title,
            *(f"{tell_number(reading[f'{name}_p{each}_ms'])} ms" for each in (50, 99)),
            f"{reading[f'{name}_reads']:.0f}",
            f"{reading[f'{name}_missing']:.0f}",
        )
        for name, title in titles.items()
    ]
    moved = [
        (
            f"a member joins {_MEMBERS - 1}",
            f"{shares['joiner_partitions']:.0f}",
            f"{shares['joined_s']:.2f} s",
        ),
        ("one is killed", f"{shares['orphans']:.0f}", f"{shares['back_s']:.2f} s"),
        ("meanwhile, where nothing moves", "", f"{shares['pause_ms']:.0f} ms without a message at the most"),
    ]
    return [
        Table(
            f"Publishers into one partition: calls of {_BATCH}; then {options.rate}/s of all together",
            (
                "publishers",
                "messages, as fast as they can",
                "until it is in the log, p50",
                "p99",
                "not within 30 s",
            ),
            published,
        ),
        Table(
            f"Readers of one partition at {options.rate}/s: from when it was due to be published",
            ("readers", "p50", "p99", "reads", "missing"),
            read,
        ),
        Table(f"A group over {_PARTITIONS} partitions", ("", "partitions", "until all of them go on"), moved),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("topics", "Many publishers, many readers, and members that come and go.")
    add_store(made)
    options = read_amounts(made, _AMOUNTS, arguments)
    with staged(options) as stage:
        load = {
            "publishers": f"{options.publishers} processes",
            "readers": f"{options.processes} processes of {options.readers}",
            "rate": f"{options.rate}/s for {options.seconds} s",
            "body": f"{_BODY_BYTES} B",
        }
        settings = tell_settings(stage.told, load)
        found = {
            "crowd": crowd(stage, options),
            "readers": subscribers(stage, options),
            "group": group(stage),
        }
    tables = tabulate(options, found["crowd"], found["readers"], found["group"])
    Report("topics", settings, tables, found).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
