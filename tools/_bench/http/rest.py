"""What clients cost that wait: of one queue, or one of each of many.

Owns when they have come to rest. What must not break: each of them still waits when what they cost is read.
"""

import argparse
import asyncio
import resource
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from _bench.clients.client_process import ClientProcess
from _bench.errors import BenchError
from _bench.http.client import HttpClient, HttpOpener
from _bench.http.connection import Connection
from _bench.http.dialect import CassqDialect
from _bench.http.servers import Held, Service
from _bench.measuring.compare import Figures, progress
from _bench.page.table import Table, tell_figures

#: The longest that the service takes: who waits for longer asks again.
_WAIT_S = 60.0
#: After the last one came: hundreds of queues are opened, and the pauses of pollers grow to their longest.
_SETTLE_S = 30.0
_FILES_BESIDE = 200


@dataclass(frozen=True, slots=True)
class Crowd:
    """Clients that wait.

    Attributes:
        queues: their names.
        each: clients of each of them.
    """

    queues: Sequence[str]
    each: int


def measure_rest(
    url: str, folder: Path, options: argparse.Namespace
) -> list[tuple[Table, dict[str, Figures]]]:
    """Measure one client, many on one queue, and one on each of many queues."""
    crowds = {
        "1 client": Crowd(["rest"], 1),
        f"{options.waiting} clients of one queue": Crowd(["rest"], options.waiting),
        f"1 client of each of {options.queues} queues": Crowd(
            [f"rest-{number}" for number in range(options.queues)], 1
        ),
    }
    found: dict[str, Figures] = {}
    rows = []
    with progress(len(crowds), "rest") as bar:
        for name, crowd in crowds.items():
            told = [_measure(url, folder, crowd, options.rest) for _ in range(options.rounds)]
            own = {
                f"{name}: MiB": Figures(tuple(each.mib for each in told)),
                f"{name}: threads": Figures(tuple(each.threads for each in told)),
                f"{name}: % of a core": Figures(tuple(100 * each.cpu_s / options.rest for each in told)),
            }
            rows.append((name, *map(tell_figures, own.values())))
            found |= own
            bar.update()
    title = f"Clients that wait, and nothing comes: a process of the service, over {options.rest} s"
    return [(Table(title, ("", "MiB", "threads", "% of a core"), rows), found)]


def _measure(url: str, folder: Path, crowd: Crowd, seconds: float) -> Held:
    """Return what a process holds; of its processor what it used in so many seconds at rest."""
    with ExitStack() as stack:
        service = Service("resting", url)
        stack.callback(service.stop)
        service.start(folder)
        opener = HttpOpener(CassqDialect(crowd.queues[0], service.key), service.ports)
        client = stack.enter_context(ClientProcess(opener, "waiting"))
        client.run(_begin, crowd, service.key)
        client.begin(_stay, crowd, _SETTLE_S + seconds + 1)
        time.sleep(_SETTLE_S)
        before = service.held()
        time.sleep(seconds)
        after = service.held()
        client.result()
        return Held(after.mib, after.threads, after.cpu_s - before.cpu_s)


def _begin(client: HttpClient, crowd: Crowd, key: str) -> None:
    """Have all of them wait."""
    count = len(crowd.queues) * crowd.each
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + _FILES_BESIDE), hard))
    connections = client.connect(count)
    dialects = [CassqDialect(name, key) for name in crowd.queues]
    for each in dialects:
        for request in each.setup:
            client.run(connections[0][0].get(request))
    waits = [dialects[number % len(dialects)].pop(1, _WAIT_S) for number in range(count)]

    async def begin() -> None:
        for (connection, *_), wait in zip(connections, waits, strict=True):
            client.waiting.append(asyncio.ensure_future(_wait(connection, wait)))
            await asyncio.sleep(0)

    client.run(begin())


async def _wait(connection: Connection, request: bytes) -> None:
    while not await connection.get(request):
        pass


def _stay(client: HttpClient, crowd: Crowd, seconds: float) -> None:
    """Let them wait for so long.

    Raises: BenchError: one of them does not any more.
    """
    client.run(asyncio.sleep(seconds))
    left = sum(not each.done() for each in client.waiting)
    if left != len(crowd.queues) * crowd.each:
        raise BenchError(f"{left} of {len(crowd.queues) * crowd.each} clients wait still")
