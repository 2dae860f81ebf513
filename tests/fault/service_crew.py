"""Three services over one store, with clients that speak HTTP.

Owns the services: that they are started, killed and ended in order, and how much memory they had at most.
What must not break: none outlives the test, and nothing is judged before all of them have ended.
"""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crew import PATIENCE_S, SEED, Crew, wait_until
from reckoning import Reckoning
from service_workers import FAT_BYTES, FAT_MESSAGES, SETTINGS, SOCKET

import cassq
from cassq.verification.ledger import Kind

WORKERS = Path(__file__).with_name("service_workers.py")
CASSQ = "cassq"
SERVICES = 3

#: What a service may have at most, whatever its clients do: it is a good third without any.
MEMORY_MIB = 200


class Served:
    """One service."""

    def __init__(self, url: str, folder: Path, number: int) -> None:
        self.socket = folder / SOCKET.format(number)
        self._errors = folder / f"service-{number}.stderr"
        words = ["--url", url, "serve", "--uds", str(self.socket), "--open", "--grace", "5"]
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [CASSQ, *words], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors
            )

    def memory_mib(self) -> float:
        """Return how much memory it had at most."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text("utf-8"))
        assert found
        return int(found[1]) / 1024

    def words(self) -> str:
        return self._errors.read_text("utf-8")


@dataclass(slots=True)
class ServiceCrew(Crew):
    """Clients of three services.

    Attributes:
        memory_mib: how much each service had at most, of all that ended, in whatever way.
    """

    services: list[Served] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)

    def serve(self, number: int) -> None:
        """Start a service, in the place of one that was killed."""
        made = Served(self.url, self.folder, number)
        self.services[number : number + 1] = [made]

    def start_services(self) -> None:
        with cassq.connect(self.url) as store:
            store.queue("fat").push_many([b"a" * FAT_BYTES] * FAT_MESSAGES)
        for number in range(SERVICES):
            self.serve(number)
        for each in self.services:
            wait_until(each.socket.exists, f"{each.socket} is there: {each.words()}")

    def kill_service(self, number: int) -> None:
        self.memory_mib.append(self.services[number].memory_mib())
        self.services[number].process.kill()
        self.services[number].process.wait(PATIENCE_S)

    def reckon(self) -> Reckoning:
        """Have clients end first, then services, each in order; then see what there is."""
        for role in ("stranger", "pusher", "popper"):
            for each in self.of(role):
                self.await_lines(each, Kind.READY, 1)
                each.stop()
            for each in self.of(role):
                each.await_stopped()
        for each in self.services:
            self.memory_mib.append(each.memory_mib())
            each.process.send_signal(signal.SIGTERM)
        for each in self.services:
            code = each.process.wait(PATIENCE_S)
            assert code == 0, f"a service ended with {code}: {each.words()[-3000:]}"
        return super(ServiceCrew, self).reckon()

    def end(self) -> None:
        super(ServiceCrew, self).end()
        for each in self.services:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait(PATIENCE_S)


@contextmanager
def service_crew(url: str, folder: Path, **options: Any) -> Iterator[ServiceCrew]:
    """Give a test such a crew, and take every process away from it in the end."""
    habits = ("--services", str(folder), "--mishaps", "0.06")
    options = {"queue": "lent", "settings": SETTINGS, "program": WORKERS, "habits": habits, **options}
    made = ServiceCrew(url, folder, SEED, **options)
    try:
        yield made
    finally:
        made.end()
