"""Plays one fault, from the start of its crew to the verdict; or many of them, mixed.

Owns the order: start, steady load, strike, steady load, drain, judge. Refuses to know what a strike does.
What must not break: whatever goes wrong becomes part of the result, and the servers are whole for the next.
"""

import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from chaos_report import Result
from clocks import Clocks, build, has_compiler
from crew import SEED, Crew, crew
from firewall import Firewall
from kinds import COMPILER, IPTABLES, ROOT, Fault
from pace import Pace, measure
from reckoning import Reckoning
from ring import Ring, RingError
from scene import Load, Scene, seat_of

from cassq.errors import CassqError
from cassq.verification.ledger import Kind

SETTLE_S = 3.0
_DISK_MIB = 48


@dataclass(frozen=True, slots=True)
class Stage:
    """Where faults are played.

    Attributes:
        ring: each fault has a queue of its own there.
        seconds: how long the load goes on, beside what a fault itself takes.
        evidence: where the ledgers of a fault are kept that broke something.
    """

    ring: Ring
    load: Load
    seconds: float
    evidence: Path
    watch: Callable[[Scene], None]
    firewall: Firewall = field(default_factory=Firewall)

    def missing(self, fault: Fault) -> str:
        """Return what a fault needs and is not here."""
        lacks = {
            ROOT: "" if self.firewall.is_root() else "root",
            IPTABLES: self.firewall.missing() if IPTABLES in fault.needs else "",
            COMPILER: "" if has_compiler() else "a C compiler",
        }
        return ", ".join(sorted({lacks[need] for need in fault.needs} - {""}))

    def blank(self, fault: Fault) -> Result:
        """Return the result of a fault that was not played yet."""
        return Result(fault.name, fault.words, goal_s=self.load.goal if fault.is_timed else None)

    def play(self, fault: Fault) -> Result:
        """Play one fault."""
        result = self.blank(fault)
        lack = self.missing(fault)
        if lack:
            return replace(result, skipped=f"needs {lack}")
        folder = Path(tempfile.mkdtemp(prefix=f"cassq-chaos-{fault.name}-"))
        try:
            with self._scene(fault, folder) as scene:
                result = self._act(scene, fault, result)
        except (AssertionError, CassqError, RingError, OSError, subprocess.SubprocessError) as error:
            result = replace(result, broken=[*result.broken, f"{type(error).__name__}: {error}"])
            self.ring.mend()
        if not result.broken:
            shutil.rmtree(folder)
        elif self.evidence != folder.parent:
            shutil.move(folder, self.evidence)
        return result

    def _act(self, scene: Scene, fault: Fault, result: Result) -> Result:
        load = self.load
        scene.doing = "starting"
        self.watch(scene)
        scene.crew.start_all(pushers=load.pushers, poppers=load.poppers, reapers=1)
        fault.prepare(scene)
        scene.doing = "steady"
        scene.wait(SETTLE_S)
        scene.begin()
        scene.wait(self.seconds / 3)
        fault.strike(scene)
        scene.wait(max(self.seconds * 2 / 3, load.goal + SETTLE_S))
        course = scene.course()
        scene.doing = "draining"
        self.watch(scene)
        end = scene.crew.reckon()
        commits = sorted(line.at for line in end.lines if line.kind is Kind.COMMITTED)
        return judged(result, end, measure(commits, course, load.goal), course.blows)

    @contextmanager
    def _scene(self, fault: Fault, folder: Path) -> Iterator[Scene]:
        clocks = Clocks(folder, build(folder) if COMPILER in fault.needs else None)
        with self._store(fault, folder) as (url, disk), self._crew(fault, folder, url, clocks) as team:
            ring = None if disk else self.ring
            yield Scene(team, self.load, self.firewall, clocks, self.watch, ring, disk)

    @contextmanager
    def _crew(self, fault: Fault, folder: Path, url: str, clocks: Clocks) -> Iterator[Crew]:
        with crew(
            url,
            folder,
            timeout_s=self.load.push_timeout,
            queue=fault.name,
            settings=self.load.settings(),
            habits=(*self.load.habits(), *fault.habits),
            seat_of=partial(seat_of, clocks),
        ) as team:
            yield team

    @contextmanager
    def _store(self, fault: Fault, folder: Path) -> Iterator[tuple[str, Path | None]]:
        if fault.store == "ring":
            load = self.load
            yield self.ring.url(session_s=load.session, timeout_s=load.timeout), None
            return
        disk = folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", str(disk)], check=True)
        try:
            yield f"sqlite:///{disk}/store.db", disk
        finally:
            subprocess.run(["umount", str(disk)], check=True)


def mix(faults: Sequence[Fault], minutes: float) -> Fault:
    """Return a fault that is many: one of the servers' and one of the clients' at a time, for so long."""

    def strike(scene: Scene) -> None:
        until = time.monotonic() + minutes * 60
        errors: list[BaseException] = []

        def go_on(chosen: list[Fault], seed: int) -> None:
            dice = random.Random(seed)
            try:
                while time.monotonic() < until and not errors:
                    fault = dice.choice(chosen)
                    scene.struck[fault.name] += 1
                    fault.strike(scene)
                    scene.wait(dice.random() * 5.0)
            except BaseException as error:
                errors.append(error)

        groups = [[each for each in faults if each.hits == hits] for hits in ("servers", "clients")]
        threads = [
            threading.Thread(target=go_on, args=(group, SEED + place))
            for place, group in enumerate(groups)
            if group
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def prepare(scene: Scene) -> None:
        for each in faults:
            each.prepare(scene)

    needs = frozenset(need for each in faults for need in each.needs)
    words = f"all of these at random for {minutes:g} min, servers and clients at once"
    return Fault("mixed", words, strike, needs, prepare=prepare, is_timed=False)


def judged(result: Result, end: Reckoning, pace: Pace, blows: Sequence[float]) -> Result:
    """Return a result with what was found."""
    verdict = end.verdict
    again = [line for line in end.lines if line.kind is Kind.DELIVERED and line.attempt > 1]
    waits = [line.at - max((at for at in blows if at <= line.at), default=line.at) for line in again]
    # What was in a buffer nobody had seen before: to the checker it is no second delivery.
    explained = dict(verdict.explained)
    buffered = len(again) - verdict.explained.total()
    if buffered > 0:
        explained["from a buffer"] = buffered
    return replace(
        result,
        messages=end.stats.committed,
        lost=len(verdict.lost),
        unexplained=len(verdict.unexplained),
        reordered=len(verdict.reordered),
        refused=len(verdict.refused),
        unknown=len(verdict.unknown),
        explained=explained,
        rate=round(pace.before, 1),
        back_s=None if pace.back_s is None else round(pace.back_s, 1),
        gap_s=round(pace.gap_s, 2),
        again_s=round(max(waits, default=0.0), 1),
        broken=end.broken(),
    )
