"""One run of the demo: real files through real processes, one of which is killed.

Owns the order of events. What must not break: whatever happens, the children are ended and the queue is
deleted.
"""

import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cassq
from cassq.cli.demo.crew import Crew, Worker
from cassq.cli.demo.verdict import Verdict, judge, judge_stats
from cassq.model.pipe import RunState
from cassq.model.progress import Progress
from cassq.pipes.outside_view import load_seen
from cassq.runtime.clock import SystemClock
from cassq.verification.ledger import Kind, Line

#: How often the ledgers are read.
TICK_S = 0.1

#: Without any progress for so long the run counts as stuck.
STUCK_S = 60.0

#: Pipes this short retire while one looks on.
PIPE_MESSAGES = 200

Watcher = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: how many processes, and how often each file is pushed."""

    pushers: int
    poppers: int
    copies: int
    root: Path
    files: tuple[str, ...]

    @property
    def expected(self) -> int:
        """How many messages that makes."""
        return len(self.files) * self.copies


@dataclass(slots=True)
class Result:
    """What came out of it.

    Attributes:
        push_rate, commit_rate: messages per second; of the commits, those before the killed popper's
            messages came again, which has to wait for the lease.
        wait_s: from the kill until the first of its messages came again.
        pipes: how many were made; every one has retired at the end.
        report: what the last passes of the reaper did, beside the reapers in the poppers.
    """

    verdict: Verdict
    bytes_pushed: int
    push_rate: float
    commit_rate: float
    wait_s: float
    pipes: int
    report: cassq.ReapReport


class DemoFailedError(cassq.CassqError):
    """Raised when the run could not be brought to its end."""

    code = "demo-failed"


def find_files() -> tuple[Path, tuple[str, ...]]:
    """Return the folder of the standard library and the names of its source files."""
    root = Path(sysconfig.get_paths()["stdlib"])
    foreign = {"site-packages", "dist-packages", "__pycache__"}
    files = (path.relative_to(root) for path in root.rglob("*.py") if path.is_file())
    return root, tuple(sorted(str(file) for file in files if not foreign & set(file.parts)))


class DemoRun:
    """One run.

    Args:
        watch: called often, with the messages pushed, committed and redelivered so far.
    """

    def __init__(
        self, plan: Plan, queue: cassq.Queue, store: cassq.Store, crew: Crew, watch: Watcher
    ) -> None:
        self._plan = plan
        self._queue = queue
        self._store = store
        self._crew = crew
        self._watch = watch
        self._clock = SystemClock()
        self._pause = threading.Event()
        self._killed_at = 0.0

    def run(self) -> Result:
        """Run it.

        Raises: DemoFailedError: a process failed, or nothing moved any more.
        """
        plan, crew = self._plan, self._crew
        # The first popper hangs after its share of a tenth, with messages in its hands.
        crew.add_popper(plan.expected // (10 * plan.poppers))
        for _ in range(plan.poppers - 1):
            crew.add_popper(None)
        self._until("a popper is ready", lambda: crew.count(Kind.READY) == plan.poppers)
        for number in range(plan.pushers):
            crew.add_pusher(plan.root, list(plan.files[number :: plan.pushers]), plan.copies)
        victim = crew.poppers[0]
        self._until("the first popper holds messages", lambda: victim.ledger.count(Kind.HOLDING) > 0)
        victim.kill()
        self._killed_at = self._clock.now()
        held = self._find_held(victim)
        self._until("every message is committed", self._is_done)
        self._end(crew.pushers)
        self._end(crew.poppers[1:])
        report = self._reap()
        verdict = judge(
            plan.expected,
            [*self._all_lines(), Line(self._killed_at, victim.name, Kind.DIED)],
            held=held,
            held_in_hand=len({line.message for line in victim.ledger.of_kind(Kind.DELIVERED)} & held),
        )
        verdict.broken.extend(judge_stats(self._queue.stats(), plan.expected))
        verdict.broken.extend(f"the reaper: {failure}" for failure in report.failed)
        return self._result(verdict, report)

    def _is_done(self) -> bool:
        ended = (Kind.COMMITTED, Kind.UNKNOWN_COMMIT)
        done = {line.message for kind in ended for line in self._crew.lines(kind)}
        return len(done) >= self._plan.expected

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Read the ledgers until something is so."""
        moved_at, seen = self._clock.now(), -1
        while True:
            self._crew.read_on()
            self._show()
            if is_so():
                return
            failed = [
                worker.name
                for worker in (*self._crew.pushers, *self._crew.poppers)
                if worker.exit_code not in {None, 0, -9}
            ]
            if failed:
                raise DemoFailedError(f"{', '.join(failed)} failed before {what}")
            count = sum(len(worker.ledger.lines) for worker in (*self._crew.pushers, *self._crew.poppers))
            if count != seen:
                moved_at, seen = self._clock.now(), count
            elif self._clock.now() - moved_at > STUCK_S:
                raise DemoFailedError(f"nothing moved for {STUCK_S:g} s, waiting until {what}")
            self._pause.wait(TICK_S)

    def _show(self) -> None:
        crew = self._crew
        again = {line.message for line in crew.lines(Kind.DELIVERED) if line.attempt > 1}
        self._watch(crew.count(Kind.ACKNOWLEDGED), crew.count(Kind.COMMITTED), len(again))

    def _find_held(self, victim: Worker) -> frozenset[str]:
        """Return what the store knows a killed popper to hold, once that no longer changes.

        A take that was on its way at the kill may still arrive.
        """
        holder = next(victim.ledger.of_kind(Kind.READY)).words
        held, seen = self._read_held(holder), None
        while held != seen:
            self._pause.wait(TICK_S)
            held, seen = self._read_held(holder) | held, held
        return held

    def _read_held(self, holder: str) -> frozenset[str]:
        storage = self._store.storage
        held = set()
        for entry in storage.list_pipes(self._queue.name).entries:
            state = load_seen(storage, entry.pipe)
            if state is None:
                continue
            progress = Progress(state)
            for run in progress.runs.values():
                if run.holder == holder and run.state is RunState.LEASED:
                    for part in progress.left_of(run):
                        held |= {
                            str(cassq.MessageId(entry.pipe, seq)) for seq in range(part.first, part.last + 1)
                        }
        return frozenset(held)

    def _end(self, workers: list[Worker]) -> None:
        failed = [worker.name for worker in workers if worker.end() != 0]
        self._crew.read_on()
        if failed:
            raise DemoFailedError(f"{', '.join(failed)} did not end well")

    def _reap(self) -> cassq.ReapReport:
        """Reap until every pipe has retired."""
        report = cassq.ReapReport()
        begun = self._clock.now()
        while self._queue.pipes():
            report.add(self._queue.reap())
            if report.failed or self._clock.now() - begun > STUCK_S:
                report.failed.append(f"{len(self._queue.pipes())} pipes did not retire")
                break
            self._pause.wait(TICK_S)
        return report

    def _all_lines(self) -> Iterator[Line]:
        for worker in (*self._crew.pushers, *self._crew.poppers):
            yield from worker.ledger.lines

    def _result(self, verdict: Verdict, report: cassq.ReapReport) -> Result:
        crew = self._crew
        begun = min(line.at for pusher in crew.pushers for line in pusher.ledger.of_kind(Kind.READY))
        pushed_until = max(line.at for line in crew.lines(Kind.ACKNOWLEDGED))
        again = [line.at for line in crew.lines(Kind.DELIVERED) if line.attempt > 1]
        came_again_at = min(again, default=self._killed_at)
        committed = [line.at for line in crew.lines(Kind.COMMITTED) if line.at < came_again_at]
        popped_from = min(line.at for line in crew.lines(Kind.DELIVERED))
        size = sum((self._plan.root / name).stat().st_size for name in self._plan.files)
        return Result(
            verdict=verdict,
            bytes_pushed=size * self._plan.copies,
            push_rate=verdict.pushed / max(pushed_until - begun, 0.001),
            commit_rate=len(committed) / max(max(committed, default=popped_from) - popped_from, 0.001),
            wait_s=came_again_at - self._killed_at,
            pipes=len({line.pipe for line in crew.lines(Kind.ACKNOWLEDGED)}),
            report=report,
        )


@contextmanager
def crew_of(folder: Path, url: str, queue: str) -> Iterator[Crew]:
    """Lend a crew, and end whoever is left of it."""
    crew = Crew(folder, url, queue)
    try:
        yield crew
    finally:
        crew.close()
