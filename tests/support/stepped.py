"""Scripts whose calls of one storage take turns, as a plan says; one of the calls may go wrong.

Owns which script runs: never two at once. Refuses to know what the calls mean.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cassq.errors import OutcomeUnknownError, StorageUnavailableError


class Fault(NamedTuple):
    """What goes wrong with one call of one script: it is counted from 0, among those of a name.

    Attributes:
        kind: "refused"; "lost" before it was carried out; "unanswered", after it; or "late": carried out so
            many calls of any script later.
    """

    script: int
    name: str
    number: int
    kind: str
    later: int = 0


class Steps:
    """Runs scripts over a storage.

    Args:
        plan: pairs of a script and of how many calls it makes before the next pair; each ends after that.
    """

    def __init__(self, storage: Any, plan: Sequence[tuple[int, int]], fault: Fault | None = None) -> None:
        self._storage = storage
        self._plan = list(plan)
        self._fault = fault
        self._counts: dict[tuple[int, str], int] = {}
        self._late: tuple[int, Callable[[], object]] | None = None
        self.calls: list[tuple[int, str]] = []
        self._go: list[threading.Semaphore] = []
        self._rests = threading.Semaphore(0)
        self._over: set[int] = set()
        self._error: BaseException | None = None

    def run(self, *scripts: Callable[[Any], object]) -> None:
        """Run the scripts, each with a storage of its own; returns once all have ended."""
        self._go = [threading.Semaphore(0) for _ in scripts]
        threads = [
            threading.Thread(target=self._run, args=(each, script), daemon=True)
            for each, script in enumerate(scripts)
        ]
        for thread in threads:
            thread.start()
        for script, count in [*self._plan, *((each, 1_000_000) for each in range(len(scripts)))]:
            for _ in range(count):
                if script in self._over:
                    break
                self._go[script].release()
                assert self._rests.acquire(timeout=20), "a script waits for ever"
        for thread in threads:
            thread.join(20)
        if self._error:
            raise self._error

    def _run(self, me: int, script: Callable[[Any], object]) -> None:
        self._go[me].acquire()
        try:
            script(_Seen(self, me))
        except BaseException as error:
            self._error = error
        finally:
            self._over.add(me)
            self._rests.release()

    def call(self, me: int, name: str, values: Any, named: Any) -> Any:
        """Carry out one call of a script, and wait for the script's next turn before it."""
        self._rests.release()
        self._go[me].acquire()
        self.calls.append((me, name))
        self._land()
        method = getattr(self._storage, name)
        number = self._counts.get((me, name), 0)
        self._counts[me, name] = number + 1
        fault = self._fault
        if fault is None or (me, name, number) != fault[:3]:
            return method(*values, **named)
        if fault.kind == "refused":
            raise StorageUnavailableError("away")
        if fault.kind == "unanswered":
            method(*values, **named)
        if fault.kind == "late":
            self._late = len(self.calls) + fault.later, lambda: method(*values, **named)
        raise OutcomeUnknownError(fault.kind)

    def _land(self) -> None:
        if self._late and len(self.calls) >= self._late[0]:
            (_, land), self._late = self._late, None
            land()


class _Seen:
    def __init__(self, steps: Steps, me: int) -> None:
        self._steps = steps
        self._me = me

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *values, **named: self._steps.call(self._me, name, values, named)
