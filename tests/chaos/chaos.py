"""Break a real ring while messages flow through it, one kind of fault after the other; judge every message.

    tools/chaos                          every kind
    tools/chaos --kinds node-killed,leader-killed --seconds-per-fault 60
    tools/chaos --mixed 10               all kinds at random on one crew, after the others
    tools/chaos --short                  what continuous integration does
    tools/chaos --topics                 the same of a topic: publishers, readers, groups, relays
    tools/chaos --report FILE.json       the table of an earlier run, in Markdown

Owns the command's words, its output and its exit code: 0 when nothing broke, 1 when anything was lost,
repeated without a reason, miscounted or stuck, 64 for a wrong option. A recovery that took longer than the
goal is told, and is no failure.
"""

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tqdm import tqdm

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("", "fault", "simulation")]

from chaos_report import Report, Result, read_report
from crew import SEED
from firewall import Firewall
from kinds import COMPILER, FAULTS, SHORT, Fault
from ring import REPLICAS, Ring
from scene import Load, Scene
from stage import Stage, mix
from topic_crew import SMALL, Cast
from topic_kinds import TOPIC_FAULTS, TOPIC_SHORT, TOPIC_SHORT_MINUTES
from topic_plants import PLANTS, VARIABLE
from topic_report import TopicReport
from topic_stage import TopicStage

import cassq
from cassq.verification.ledger import Kind

_SHORT_SECONDS = 15.0
_RATE = 400.0
# Leaves a small machine the time to start a killed node beside the load.
_SHORT_RATE = 100.0
# Each message of a topic is read 12 times, consumed 3 times, and relayed.
_TOPIC_RATE = 40.0


class Line:
    """The one line that tells how it goes."""

    def __init__(self, total: int) -> None:
        self._bar = tqdm(total=total, unit="fault", dynamic_ncols=True)
        self._seen: tuple[float, int, int] | None = None
        self.name = ""

    def show(self, scene: Scene) -> None:
        """Tell what happens, and how fast."""
        members = [*scene.crew.members, *scene.crew.former]
        pushed, committed = (
            sum(each.count(kind) for each in members) for kind in (Kind.ACKNOWLEDGED, Kind.COMMITTED)
        )
        at = scene.now()
        if self._seen is None or committed < self._seen[2] or scene.doing in ("starting", "draining"):
            rates = ""
        elif at - self._seen[0] < 1.0:
            return
        else:
            seconds = at - self._seen[0]
            rates = f", push {(pushed - self._seen[1]) / seconds:.0f}/s"
            rates += f", commit {(committed - self._seen[2]) / seconds:.0f}/s"
        self._seen = (at, pushed, committed)
        self._bar.set_postfix_str(f"{self.name}: {scene.doing}{rates}")

    def tell(self, result: Result) -> None:
        """Tell what came out of one fault."""
        self._bar.update()
        self._bar.write(" | ".join(cell for cell in result.cells() if cell), file=sys.stderr)
        for what in result.broken:
            self._bar.write(f"    {what}", file=sys.stderr)

    def close(self) -> None:
        """Leave the line."""
        self._bar.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = _parse(arguments)
    if options.report:
        report = read_report(options.report, TopicReport if options.topics else Report)
        _say(report.table())
        if options.into:
            report.put_into(options.into)
        return 0
    if options.list:
        for each in TOPIC_FAULTS if options.topics else FAULTS:
            needs = f" (needs {', '.join(sorted(each.needs))})" if each.needs else ""
            _say(f"{each.name:<17} {each.words}{needs}")
        return 0
    if options.plant:
        os.environ[VARIABLE] = options.plant  # for the workers: whoever judges them is as it should be
    faults = _choose(options)
    report = run(faults, options)
    _say(report.table())
    _say(report.summary())
    for what in report.complaints():
        _say(f"BROKEN {what}")
    is_short_of = options.short and any(each.skipped for each in report.results)
    return 1 if report.complaints() or is_short_of else 0


def _say(text: str) -> None:
    print(text)  # noqa: T201 (a command talks)


def run(faults: Sequence[Fault], options: argparse.Namespace) -> Report:
    """Start a ring, play the faults, and take the ring away."""
    load = Load(rate=options.rate or _RATE)
    cast = SMALL if options.short else Cast()
    if options.topics:
        load = replace(load, rate=options.rate or _TOPIC_RATE, pushers=cast.publishers)
    line = Line(len(faults))
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="cassq-chaos-ring-") as folder:
        ring = Ring(options.dir or Path(folder) / "services")
        try:
            ring.start(*(["--low-power"] if options.short else []))
            setup = _setup(ring, load)
            report = (
                TopicReport({**setup, **asdict(cast)}, results) if options.topics else Report(setup, results)
            )
            tqdm.write(report.head(), file=sys.stderr)
            evidence = options.evidence or Path(tempfile.gettempdir())
            ring.make_keyspace()
            given = ring, load, options.seconds_per_fault, evidence, line.show
            stage = TopicStage(*given, cast=cast) if options.topics else Stage(*given)
            for each in faults:
                line.name = each.name
                results.append(stage.play(each))
                line.tell(results[-1])
                if options.json:
                    report.write(options.json)
        finally:
            line.close()
            if not options.dir:
                ring.remove()
    return report


def _setup(ring: Ring, load: Load) -> dict[str, object]:
    return {
        "cassq": cassq.__version__,
        **ring.versions(),
        "replication": REPLICAS,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        **asdict(load),
        "seed": SEED,
    }


def _choose(options: argparse.Namespace) -> list[Fault]:
    known = {each.name: each for each in (TOPIC_FAULTS if options.topics else FAULTS)}
    short = TOPIC_SHORT if options.topics else SHORT
    names = short if options.short else tuple(known)
    if options.kinds is not None:
        names = tuple(name for name in options.kinds.split(",") if name)
    wrong = [name for name in names if name not in known]
    if wrong:
        tqdm.write(f"chaos: there is no {', '.join(wrong)}; --list tells the kinds", file=sys.stderr)
        raise SystemExit(64)
    if options.short:
        options.seconds_per_fault = _SHORT_SECONDS
        options.rate = options.rate or (_TOPIC_RATE if options.topics else _SHORT_RATE)
    chosen = [known[name] for name in names]
    # Clocks and full disks need a crew of their own.
    fit = [each for each in chosen or known.values() if each.store == "ring" and COMPILER not in each.needs]
    if options.topics and Firewall().missing():
        fit = [each for each in fit if not each.needs]
    if options.topics and options.short:
        return [mix(fit, options.mixed or TOPIC_SHORT_MINUTES)]
    return [*chosen, mix(fit, options.mixed)] if options.mixed else chosen


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--kinds", metavar="A,B", help="only these; empty for none but --mixed")
    add("--list", action="store_true", help="tell the kinds, and what they need")
    add("--mixed", type=float, metavar="MINUTES", help="mix them for so long, after the others")
    add("--seconds-per-fault", type=float, default=30.0, metavar="N", help="of load besides; 30")
    add(
        "--rate",
        type=float,
        metavar="N",
        help=f"messages a second; {_RATE:g}, {_SHORT_RATE:g} or {_TOPIC_RATE:g}",
    )
    add("--topics", action="store_true", help="of a topic, instead of a queue")
    add("--plant", choices=[each.name for each in PLANTS], help="with --topics: have the workers do wrong")
    add("--json", type=Path, metavar="FILE", help="write the results there too")
    add(
        "--short",
        action="store_true",
        help=f"only {', '.join(SHORT)}, or a short mix; nothing may be skipped",
    )
    add("--report", type=Path, metavar="FILE", help="print the table of such a file, and run nothing")
    add("--into", type=Path, metavar="PAGE", help="with --report: put it into docs/reliability.md as well")
    add(
        "--dir",
        type=Path,
        help="keep the servers of this directory (see tools/services) and leave them running",
    )
    add("--evidence", type=Path, help="where ledgers are kept when something broke")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
