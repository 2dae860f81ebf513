"""A crew of popper processes, of which some are killed or frozen now and then, and what they note down.

Owns the processes, the folder of their notes, and their end. Refuses to know what they do and note. What must
not break: each process has a file of its own, since the last note of one that was killed may be torn.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import ClientProcess
from _bench.stage import Stage

_READY_S = 180.0
_LOOK_S = 2.0
_ENOUGH = "enough"


def is_enough(notes: str) -> bool:
    """Tell a process, by the path of its notes, whether it is to end."""
    return Path(notes).with_name(_ENOUGH).exists()


class Crew:
    """Processes that do one work each until it is enough; their notes stay in the stage's folder.

    Args:
        openers: end the processes, whatever happens.
        work: gets the path of a file for notes, a line each; it ends when `is_enough` says so.
        count: of processes; for one that is killed another one starts.

    Attributes:
        struck: how many were killed or frozen.
    """

    def __init__(
        self, openers: ExitStack, stage: Stage, work: Callable[[CassqClient, str], None], count: int
    ) -> None:
        self._openers = openers
        self._stage = stage
        self._work = work
        self._folder = Path(tempfile.mkdtemp(prefix="crew-", dir=stage.folder))
        self._dice = random.Random(1)
        self._begun = 0
        self._crew = [self._start() for _ in range(count)]
        self._frozen: list[tuple[float, ClientProcess]] = []
        self.struck = 0

    def begin(self) -> None:
        """Wait for all of them, and let them begin."""
        for each in self._crew:
            self._begin(each)

    def kill(self) -> None:
        """Kill one, and start another."""
        self._choose().kill()
        self._crew.append(self._start())
        self._begin(self._crew[-1])

    def freeze(self) -> None:
        """Freeze one until `thaw`."""
        each = self._choose()
        each.freeze()
        self._frozen.append((time.monotonic(), each))

    def thaw(self, seconds: float = 0.0) -> None:
        """Let those go on that have been frozen for so long."""
        until = time.monotonic() - seconds
        thawed = [(since, each) for since, each in self._frozen if since <= until]
        for since, each in thawed:
            each.thaw()
            self._frozen.remove((since, each))
            self._crew.append(each)

    @property
    def up(self) -> int:
        """How many are neither killed nor frozen."""
        return len(self._crew)

    def notes(self, words: int) -> Iterator[tuple[str, list[bytes]]]:
        """Return the name of a process and the words of each of its notes; one with others is torn."""
        for path in sorted(self._folder.glob("notes-*")):
            for line in path.read_bytes().split(b"\n")[:-1]:
                found = line.split()
                if len(found) == words:
                    yield path.name, found

    def wait(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Wait until something is over, at most for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not is_over():
            time.sleep(_LOOK_S)

    def end(self) -> None:
        """Let all of them end, and wait for that."""
        self.thaw()
        (self._folder / _ENOUGH).touch()
        for each in self._crew:
            each.result()

    def _choose(self) -> ClientProcess:
        self.struck += 1
        return self._crew.pop(self._dice.randrange(len(self._crew)))

    def _start(self) -> ClientProcess:
        self._begun += 1
        return self._openers.enter_context(ClientProcess(self._stage.opener, f"popper-{self._begun}"))

    def _begin(self, process: ClientProcess) -> None:
        process.wait_ready(_READY_S)
        process.begin(self._work, str(self._folder / f"notes-{process.title}"))
