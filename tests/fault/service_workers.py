"""Workers that speak HTTP to any of several services, and strangers that no service wants as its clients.

Owns what a client of each kind does, and what it notes. The rules are those of `workers`. A lease that was
answered runs, as its client knows, for what it was told from when it asked; so nothing is held against a
service that it did not promise.

    python service_workers.py popper --url URL --services FOLDER --ledger FILE --who NAME --seed 7
"""

import random
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import httpx
from workers import Habits, Worker, main

import cassq
from cassq.verification.ledger import Kind, LedgerWriter, Line

#: Every limit is short, so that each fault outlasts it within seconds; what has keys no token can name.
SETTINGS = {
    "retry_delay": timedelta(0),
    "lease": timedelta(seconds=3),
    "push_age_max": timedelta(seconds=1),
    "push_grace": timedelta(milliseconds=600),
    "clock_skew_max": timedelta(milliseconds=100),
    "pipe_messages_max": 200,
    "max_attempts": 1_000_000,
}

SOCKET = "service-{}.sock"

#: A service that is not there is left alone for so long; a commit that nobody knows of is sent so often.
PAUSE_S = 0.05
ATTEMPTS = 6

#: What strangers ask for and do not read has so much, as much as one answer may have.
FAT = "/v1/queues/fat"
FAT_BYTES, FAT_MESSAGES = 64 * 1024, 64

#: A stranger has so many connections at most that it does not read.
UNREAD_MAX = 8

NDJSON = {"Content-Type": "application/x-ndjson"}
_OK, _NONE, _CONFLICT, _UNAVAILABLE = 200, 204, 409, 503
_CREATED, _TIMEOUT = 201, 504


@dataclass
class _Held:
    """A lease that a client has, and its messages by their ids."""

    token: str
    attempt: int
    until: float
    bodies: dict[str, str] = field(default_factory=dict)


class ServiceWorker(Worker):
    """One client."""

    ROLES: ClassVar = {"pusher": "push", "popper": "pop", "stranger": "be_strange"}

    def __init__(self, ledger: LedgerWriter, habits: Habits) -> None:
        super().__init__(ledger, habits)
        self.sockets = [str(Path(habits.services, SOCKET.format(number))) for number in range(3)]
        self._clients = [
            httpx.Client(
                base_url="http://localhost", transport=httpx.HTTPTransport(uds=path), timeout=habits.timeout_s
            )
            for path in self.sockets
        ]
        self._path = f"/v1/queues/{habits.queue}"

    def _post(self, call: str, **content: Any) -> httpx.Response:
        return self.dice.choice(self._clients).post(f"{self._path}/{call}", **content)

    def push(self, _: cassq.Store) -> None:
        """Push unique messages, one as it is or some as lines."""
        made = 0
        while not self.is_over.is_set():
            count = self.dice.choice((1, 1, 3, 10, 40))
            bodies = [f"{self.ledger.who}-{made + place}" for place in range(count)]
            made += count
            self.ledger.note(Kind.ATTEMPTED, *bodies)
            kind, words = self._push_bodies(bodies)
            self.ledger.note(kind, *bodies, words=words)
            self.is_over.wait(self.dice.random() * self.habits.pace_s)

    def _push_bodies(self, bodies: Sequence[str]) -> tuple[Kind, str]:
        lines = "".join(f'{{"body": "{body}"}}\n' for body in bodies)
        try:
            if len(bodies) == 1:
                told = self._post("messages", content=bodies[0])
            else:
                told = self._post("messages", content=lines, headers=NDJSON)
        except httpx.ConnectError as error:
            self.is_over.wait(PAUSE_S)
            return Kind.REFUSED, repr(error)
        except httpx.TransportError as error:
            return Kind.UNKNOWN_PUSH, repr(error)
        if told.status_code == _CREATED:
            return Kind.ACKNOWLEDGED, ""
        assert told.status_code in {_UNAVAILABLE, _TIMEOUT}, told.text
        is_refused = told.status_code == _UNAVAILABLE and told.json().get("done") is None
        return (Kind.REFUSED if is_refused else Kind.UNKNOWN_PUSH), told.text

    def pop(self, _: cassq.Store) -> None:
        """Lease 1 to 40; commit nearly all, at whatever service; give some back, extend or forget a few."""
        while not self.is_over.is_set():
            for held in self._lease(self.dice.choice((1, 1, 5, 20, 40))):
                roll = self.dice.random()
                if roll < self.habits.mishaps:
                    continue  # forgotten: the lease ends
                if roll < 2 * self.habits.mishaps:
                    self._settle(held)
                    continue
                if roll < 3 * self.habits.mishaps:
                    self._extend(held)
                self._commit(held)

    def _lease(self, count: int) -> list[_Held]:
        asked_at = self.ledger.now()
        try:
            told = self._post("lease", json={"count": count, "wait_s": 0.5})
        except httpx.TransportError:
            self.is_over.wait(PAUSE_S)
            return []
        if told.status_code != _OK:
            assert told.status_code in {_NONE, _UNAVAILABLE}, told.text
            return []
        found = [
            _Held(
                each["lease"],
                each["attempt"],
                asked_at + each["left_s"],
                {one["id"]: one["body"] for one in each["messages"]},
            )
            for each in told.json()["leases"]
        ]
        for held in found:
            self._note_until(Kind.DELIVERED, held)
        return found

    def _note_until(self, kind: Kind, held: _Held) -> None:
        at, who = self.ledger.now(), self.ledger.who
        self.ledger.append(
            Line(at, who, kind, body, held.attempt, held.until) for body in held.bodies.values()
        )

    def _ask(self, call: str, **body: Any) -> httpx.Response | None:
        """Return an answer that tells an outcome; None: nobody knows."""
        with suppress(httpx.TransportError):
            told = self._post(call, json=body)
            if told.status_code in {_OK, _CONFLICT}:
                return told
            assert told.status_code in {_UNAVAILABLE, _TIMEOUT}, told.text
        self.is_over.wait(PAUSE_S)
        return None

    def _commit(self, held: _Held) -> None:
        """Commit, again while nobody knows; at times once more, which changes nothing."""
        bodies = held.bodies.values()
        self.ledger.note(Kind.COMMITTING, *bodies, attempt=held.attempt)
        kind, is_doubted = Kind.UNKNOWN_COMMIT, False
        for _ in range(ATTEMPTS):
            told = self._ask("commit", leases=[held.token])
            outcome = told.json()["outcomes"][0] if told else "unknown"
            if outcome == "committed":
                kind = Kind.COMMITTED
            elif outcome == "expired" and not is_doubted:
                kind = Kind.EXPIRED
            if outcome != "unknown":
                break
            is_doubted = True
        self.ledger.note(kind, *bodies, attempt=held.attempt)
        if kind is Kind.COMMITTED and self.dice.random() < self.habits.mishaps:
            again = self._ask("commit", leases=[held.token])
            assert again is None or again.json()["outcomes"] != ["expired"], again.text

    def _settle(self, held: _Held) -> None:
        back = [each for each in held.bodies if self.dice.random() < 0.5]
        kept = [body for each, body in held.bodies.items() if each not in back]
        if back:
            bodies = [held.bodies[each] for each in back]
            self.ledger.note(Kind.ROLLING_BACK, *bodies, attempt=held.attempt)
        if kept:
            self.ledger.note(Kind.COMMITTING, *kept, attempt=held.attempt)
        told = self._ask("settle", lease=held.token, rollback=[{"id": each} for each in back])
        is_done = told is not None and told.status_code == _OK and told.json()["outcome"] == "committed"
        if kept:
            kind = Kind.COMMITTED if is_done else Kind.UNKNOWN_COMMIT
            self.ledger.note(kind, *kept, attempt=held.attempt)

    def _extend(self, held: _Held) -> None:
        asked_at = self.ledger.now()
        told = self._ask("extend", leases=[held.token])
        if told and told.status_code == _OK and told.json()["outcomes"][0]["outcome"] == "extended":
            held.until = asked_at + told.json()["outcomes"][0]["left_s"]
            self._note_until(Kind.EXTENDED, held)

    def be_strange(self, _: cassq.Store) -> None:
        """Wait and leave, leave in the middle of an answer, send half a body, and never read."""
        Stranger(self.sockets, self._path, self.dice, self.ledger).go_on(self.is_over.wait, PAUSE_S)


class Stranger:
    """A client that does wrong what a client can do wrong."""

    def __init__(self, sockets: Sequence[str], path: str, dice: random.Random, ledger: LedgerWriter) -> None:
        self._sockets = sockets
        self._path = path
        self._dice = dice
        self._ledger = ledger
        self._unread: deque[socket.socket] = deque()

    def go_on(self, wait: Callable[[float], bool], pause_s: float) -> None:
        """Do one thing after the other until `wait` returns True; notes how often it did each."""
        ways = (self._leave_waiting, self._leave_in_answer, self._send_half, self._never_read)
        done: Counter[str] = Counter()
        while not wait(self._dice.random() * pause_s):
            way = self._dice.choice(ways)
            with suppress(OSError):  # a service that is not there just now
                way(wait)
                done[way.__name__] += 1
                self._ledger.note(Kind.HOLDING, words=way.__name__)
        while self._unread:
            self._unread.popleft().close()

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(5)
        made.connect(self._dice.choice(self._sockets))
        return made

    def _request(
        self, method: str, call: str, body: bytes = b"", *, length: int | None = None, path: str = ""
    ) -> bytes:
        words = f"{method} {path or self._path}/{call} HTTP/1.1"
        head = f"{words}\r\nHost: localhost\r\nContent-Type: application/json"
        size = len(body) if length is None else length
        return f"{head}\r\nContent-Length: {size}\r\n\r\n".encode() + body

    def _leave_waiting(self, wait: Callable[[float], bool]) -> None:
        with self._connect() as made:
            made.sendall(self._request("POST", "lease", b'{"count": 20, "wait_s": 5}'))
            wait(self._dice.random() * 0.2)

    def _leave_in_answer(self, _: Callable[[float], bool]) -> None:
        with self._connect() as made:
            made.sendall(self._request("POST", "lease", b'{"count": 3, "wait_s": 0.2}'))
            made.recv(10)

    def _send_half(self, wait: Callable[[float], bool]) -> None:
        with self._connect() as made:
            made.sendall(self._request("POST", "messages", b"half of a message", length=1000))
            wait(self._dice.random() * 0.2)

    def _never_read(self, _: Callable[[float], bool]) -> None:
        """Ask for much again and again; the answers fill whatever is between."""
        made = self._connect()
        self._unread.append(made)
        made.setblocking(False)
        with suppress(BlockingIOError):
            made.sendall(200 * self._request("GET", "messages?limit=1000", path=FAT))
        if len(self._unread) > UNREAD_MAX:
            self._unread.popleft().close()


if __name__ == "__main__":
    sys.exit(main(ServiceWorker))
