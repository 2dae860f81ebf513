"""Three replicas behind three coordinators, at their worst.

Owns what a request may meet on its way: it comes late or never, its reply does, only one replica writes it, a
replica misses it for ever or gets it by a hint much later, a transaction lands after the client has given up,
coordinators' clocks differ, nodes are down. What becomes of nodes besides is in `nodes.py`. Refuses to break
what Cassandra promises:

- a plain write that is acknowledged is on two of three replicas;
- a QUORUM read asks two and repairs both: the rows that it read, and in these the columns that it named;
- transactions of one partition are linearizable; what one decided is on a quorum before the next begins;
- a SERIAL read sees every transaction that was decided before. One that is still on its way it cannot see,
  and that one may land afterwards: by a timer, or in ambush, right behind the next read of its partition.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from uuid import UUID

from cassandra import OperationTimedOut, ReadFailure, ReadTimeout, Unavailable, WriteTimeout, WriteType
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cql import Select, Table, Write
from execution import (
    Answer,
    Bound,
    conditioned_rows,
    key_of,
    live_rows,
    place_of,
    refusal_of,
    select_rows,
    to_mutation,
    to_time,
)
from nodes import REPLICAS, Nodes
from replicas import Key, Mutation, Partition, Replica, merge_partitions
from scheduler import EPOCH_S, Process, Task, World

from cassq.storage.cassandra.statement import Call

QUORUM = 2

#: What the coordinators' clocks show when the world begins.
EPOCH_MS = EPOCH_S * 1000

#: Transactions carry ballots as timestamps: above every fixed one, below a deletion's.
_FIRST_BALLOT = 1 << 50


_OUTLINE = {"count", "pushed_at"}


@dataclass(frozen=True, slots=True)
class Odds:
    """How likely each fault is, per request, while faults are on.

    Attributes:
        stall: request or reply take up to `stall_s` longer.
        never: the request is lost on its way.
        reply_lost: it is carried out, and nobody hears of it.
        refused: no node can be asked; nothing happens.
        late: a write is carried out after its client has given up, after `late_s` at most.
        outage: a change of a queue's record is late, and its client is cut off until it has given up.
        ambush: such a write waits for another request on its partition instead, and lands behind it.
        partial: a plain write reaches one replica only.
        parts: a batch reaches one replica only, however often it is sent; another may have its outline, as a
            read leaves it that does not name its bodies.
        missed: a replica that did not write at once never will, unless it is repaired.
        slow_replica: the third replica writes later.
        torn: a QUORUM read asks its two replicas one after the other, with time in between.
        crash, freeze: the client's process dies, or stops, before a request is sent or as it is carried out.
    """

    stall: float = 0.0
    never: float = 0.0
    reply_lost: float = 0.0
    refused: float = 0.0
    late: float = 0.0
    outage: float = 0.0
    ambush: float = 0.5
    partial: float = 0.0
    parts: float = 0.0
    missed: float = 0.5
    slow_replica: float = 0.3
    torn: float = 0.0
    crash: float = 0.0
    freeze: float = 0.0
    stall_s: float = 1.0
    late_s: float = 3.0


def _is_of_record(call: Call, work: Sequence[Bound]) -> bool:
    place = place_of(work[0]) if call is Call.TRANSACTION else None
    return place is not None and place[0] == "queues"


@dataclass(slots=True, eq=False)
class Flight:
    """One request on its way; the driver's future."""

    world: World
    timeout_s: float
    call: Call
    task: Task | None = None
    is_done: bool = False
    value: Any = None
    error: BaseException | None = None

    def land(self, value: Any, error: BaseException | None) -> None:
        """Let the reply arrive; one that comes too late is not heard."""
        if not self.is_done:
            self.is_done, self.value, self.error = True, value, error
            if self.task:
                self.world.unpark(self.task)

    @property
    def timeout(self) -> float:
        """As the driver's futures call it."""
        return self.timeout_s

    def result(self) -> Any:
        """Wait for the reply, as the driver's futures do."""
        while not self.is_done:
            self.task = self.world.current
            self.world.park()
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True, slots=True)
class HalfRead:
    """What the first of two replicas said to a read, before the other one was asked."""

    replica: Replica
    partition: Partition


@dataclass(slots=True)
class _Paxos:
    """What the replicas of one partition agreed on last, and who waits to get in between."""

    latest: Mutation | None = None
    decided_on: float = 0.0
    ambushes: list[tuple[int, Callable[[], None]]] = field(default_factory=list)


class Cluster:
    """The database of one history.

    Args:
        skews_ms: how far each coordinator's clock is ahead.
        day_s: how long a day takes, for hints and deletions.
        watch: hears of each request that is carried out: process, call, what was bound, the answer.
        stop: crashes or freezes a process.
        applied: hears of each transaction that is applied.
        slip: hears of each request, and tells how it is to fail, in the words of a plan's slip.
    """

    def __init__(
        self,
        world: World,
        *,
        odds: Odds,
        skews_ms: Sequence[int],
        timeout_s: float,
        day_s: float = 86400.0,
        watch: Callable[[Process, Call, Sequence[Bound], object], None] | None = None,
        stop: Callable[[Process, str], None] | None = None,
        applied: Callable[[Mutation], None] = lambda _mutation: None,
        slip: Callable[[Process], str] = lambda _process: "",
    ) -> None:
        self.world = world
        self.odds = odds
        self.is_faulty = True
        self.nodes = Nodes(world, day_s)
        self.replicas = self.nodes.replicas
        self.requests = 0
        #: `tombstone_failure_threshold`.
        self.tombstones_max = 100_000
        self._skews_ms = skews_ms
        self._timeout_s = timeout_s
        self._watch = watch
        self._stop = stop
        self._applied = applied
        self._slip = slip
        self._paxos: dict[tuple[str, Key], _Paxos] = {}
        self._ballot = _FIRST_BALLOT
        # By body: the row that it was written in, which columns that has, and the place among its bodies.
        self._homes: dict[bytes, list[tuple[Key, Key, Collection[str], int]]] = {}
        self._deleted: set[Key] = set()
        self._alone: dict[Any, Replica | None] = {}

    def send(self, process: Process, call: Call, work: Sequence[Bound]) -> Flight:
        """Send one request; the flight lands with the answer, or with what the driver would raise."""
        world, odds, dice = self.world, self.odds, self.world.dice
        self.requests += 1
        self._let_others_in(process)
        flight = Flight(world, self._timeout_s, call)
        there, back = dice.random() * 0.004, dice.random() * 0.004
        fate = dice.random() if self.is_faulty else 1.0
        slip = self._slip(process)
        if process.is_cut or slip == "refused" or (fate := fate - odds.refused) < 0:
            refusal = NoHostAvailable("nobody", {"node": ConnectionException("the network is cut")})
            world.after(there, partial(flight.land, None, refusal))
            return flight
        if slip == "lost" or (fate := fate - odds.never) < 0:
            self._give_up_in_time(flight)
            return flight
        if slip == "unheard" or (fate := fate - odds.reply_lost) < 0:
            back = self._timeout_s + 1
        elif (fate := fate - odds.stall) < 0:
            there += dice.random() * odds.stall_s
            back += dice.random() * odds.stall_s
        elif slip == "late" or (call in (Call.WRITE, Call.TRANSACTION) and (fate := fate - odds.late) < 0):
            there = self._timeout_s + dice.random() * odds.late_s
            back = there
        if odds.outage and self._may_cut_off(process, call, work):
            there = back = self._timeout_s + dice.random() * odds.late_s
        if there + back > self._timeout_s or (odds.torn and call is Call.READ):
            self._give_up_in_time(flight)
        if there > self._timeout_s and dice.random() < odds.ambush and call in (Call.WRITE, Call.TRANSACTION):
            self._lie_in_ambush(process, flight, call, work, there)
        elif call is Call.LOCAL:
            world.after(there + back, partial(self._carry_out, process, flight, call, work, 0.0))
        else:
            world.after(there, partial(self._carry_out, process, flight, call, work, back))
        return flight

    def _let_others_in(self, process: Process) -> None:
        """Let anything come between a decision and its request, now and then."""
        if self._may_stop(process) or self.world.dice.random() < 0.05:
            self.world.sleep(0.0)

    def _may_cut_off(self, process: Process, call: Call, work: Sequence[Bound]) -> bool:
        """Cut a process off that changes a queue's record, now and then, until it has given up."""
        dice = self.world.dice
        if not self.is_faulty or not _is_of_record(call, work) or dice.random() >= self.odds.outage:
            return False
        process.is_cut = True
        self.world.after(self._timeout_s + dice.random() * 0.1, partial(setattr, process, "is_cut", False))
        return True

    def _give_up_in_time(self, flight: Flight) -> None:
        self.world.after(self._timeout_s, partial(flight.land, None, OperationTimedOut()))

    def heal(self) -> None:
        """Make no more faults; every node is up again that is not lost, and gets what hints wait for it."""
        self.is_faulty = False
        self.nodes.heal()

    def is_kept(self, body: bytes, messages: int = 1) -> bool:
        """Tell whether a quorum has all of so many messages with a body, or had it when a node was lost.

        What is deleted had ended before; whether rightly, others judge.
        """
        kept = {
            (key, ck, place)
            for key, ck, columns, place in self._homes.get(body, [])
            if key in self._deleted
            or sum(replica.had("waiting", key, ck, columns) for replica in self.replicas) >= QUORUM
        }
        return len(kept) >= messages

    def body_at(self, pipe: UUID, seq: int) -> bytes:
        """Return the body that was sent for a message."""
        return next(
            body
            for body, homes in self._homes.items()
            for key, ck, _, place in homes
            if (key[0], ck[0] + place) == (pipe, seq)
        )

    def come_back(self) -> list[str]:
        """Let days pass until every deletion is forgotten; tell what of pipes that ended is there again."""
        stood = self._standing()  # an entry that landed late, of a pipe that nobody ever pushed into
        self.nodes.let_days_pass()
        found = [f"came back: {row}" for row in self.leftovers()]
        return found + [f"came back: pipe {UUID(int=number)}" for number in sorted(self._standing() - stood)]

    def _standing(self) -> set[int]:
        """Return the pipes that stand in a list and have a head, as numbers."""
        return {
            number
            for number in self._listed()
            if live_rows(self._merged("pending", (UUID(int=number),), self.replicas))
        }

    def leftovers(self) -> list[str]:
        """Tell which rows of `waiting` and `pending` can still be read, of pipes that nobody lists.

        A head alone is no fault: the outcome of its insertion was unknown, and its id was thrown away.
        """
        listed = self._listed()
        found = []
        for table in ("waiting", "pending"):
            for key in self.nodes.keys(table):
                rows = live_rows(self._merged(table, key, self.replicas))
                is_head_alone = [ck for ck, _ in rows] == [(-1, 0)] and rows[0][1]["cursor"] == 0
                if key[0].int not in listed and not is_head_alone:
                    found += [f"{table} {key[0]} {ck}: {values}" for ck, values in rows]
        return found

    def _listed(self) -> set[int]:
        """Return the pipes that stand in a list, as numbers."""
        return {
            ck[0][2]
            for table in ("pipes", "staged")
            for key in self.nodes.keys(table)
            for ck, _ in live_rows(self._merged(table, key, self.replicas))
        }

    def rows(self, table: str) -> list[str]:
        """Return what can still be read of a table, in words."""
        return [
            f"{table} {key} {ck}: {values}"
            for key in self.nodes.keys(table)
            for ck, values in live_rows(self._merged(table, key, self.replicas))
        ]

    def bodies(self, pipe: UUID) -> list[bytes]:
        """Return what any node has of a pipe's messages, in order."""
        rows = live_rows(self._merged("waiting", (pipe,), self.replicas))
        return [body for _, row in rows for body in row.get("bodies") or ()]

    def _lie_in_ambush(
        self, process: Process, flight: Flight, call: Call, work: Sequence[Bound], at_most_s: float
    ) -> None:
        is_over = False

        def strike() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._carry_out(process, flight, call, work, self._timeout_s)

        paxos = self._paxos_of(place_of(work[0]))
        paxos.ambushes.append((self.world.dice.randrange(4), strike))
        self.world.after(at_most_s, strike)

    def _carry_out(
        self, process: Process, flight: Flight, call: Call, work: Sequence[Bound], back: float
    ) -> None:
        self._may_stop(process)
        if call is Call.READ and self.is_faulty and self.world.dice.random() < self.odds.torn:
            half = self._half_read(work[0])
            pause = self.world.dice.random() * self.odds.stall_s / 2
            self.world.after(pause, partial(self._answer, process, flight, call, work, back, half))
        else:
            self._answer(process, flight, call, work, back, None)
        place = place_of(work[0])
        paxos = self._paxos.get(place) if place else None
        if paxos and paxos.ambushes:
            waiting, paxos.ambushes = paxos.ambushes, []
            for count, strike in waiting:
                if count:
                    paxos.ambushes.append((count - 1, strike))
                else:
                    self.world.after(0.0, strike)

    def _answer(
        self,
        process: Process,
        flight: Flight,
        call: Call,
        work: Sequence[Bound],
        back: float,
        half: "HalfRead | None",
    ) -> None:
        error: BaseException | None = None
        value: Any = None
        try:
            value = self.execute(call, work, half)
        except (Unavailable, WriteTimeout, ReadTimeout) as raised:
            error = raised
        if self._watch:
            self._watch(process, call, work, value if error is None else error)
        if back:
            self.world.after(back, partial(flight.land, value, error))
        else:
            flight.land(value, error)

    def _may_stop(self, process: Process) -> bool:
        if not self.is_faulty or self._stop is None or process.is_dead or process.is_frozen:
            return False
        roll = self.world.dice.random()
        if roll < self.odds.crash + self.odds.freeze:
            self._stop(process, "crash" if roll < self.odds.crash else "freeze")
            return True
        return False

    def execute(self, call: Call, work: Sequence[Bound], half: "HalfRead | None" = None) -> Any:
        """Carry a request out now; raise what a coordinator would answer."""
        coordinator = self.world.dice.randrange(REPLICAS)
        now_ms = EPOCH_MS + int(self.world.now * 1000) + self._skews_ms[coordinator]
        statement, values = work[0]
        if call is Call.LOCAL:
            return [(to_time(now_ms),)]
        up = self.nodes.up
        if len(up) < QUORUM:
            raise Unavailable("two replicas are down")
        if call is Call.TRANSACTION:
            return self._transact([(cast("Write", each), bound) for each, bound in work], up, now_ms)
        if isinstance(statement, Select):
            return self._read(statement, values, up, half, now_ms, is_serial=call is Call.SERIAL_READ)
        self._write([(cast("Write", each), bound) for each, bound in work], up, now_ms)
        return []

    # Reading

    def _read(
        self,
        select: Select,
        values: Sequence[Any],
        up: list[Replica],
        half: "HalfRead | None",
        now_ms: int,
        *,
        is_serial: bool,
    ) -> list[tuple[Any, ...]]:
        table = cast("Table", select.table)
        key = key_of(select, values)
        keys = sorted({k for replica in up for k in replica.keys(table.name)}) if key is None else [key]
        found: list[tuple[Any, ...]] = []
        for each in keys:
            quorum = self._quorum(up)
            self._forget(table.name, each, quorum)
            if is_serial:
                self._finish_last(table.name, each, quorum)
            seen = [replica.partition(table.name, each) for replica in quorum]
            if half is not None and half.replica.is_up:
                other = next(replica for replica in quorum if replica is not half.replica)
                quorum = [half.replica, other]
                seen = [half.partition, other.partition(table.name, each)]
            merged = merge_partitions(seen)
            rows, read = select_rows(select, values, each, merged, now_ms)
            if merged.count_tombstones(read) > self.tombstones_max:
                raise ReadFailure("too many tombstones", error_code_map={"a node": 1})
            for replica in quorum if table.is_repaired else ():
                replica.take_over(table.name, each, merged, read, select.named)
            found += rows
        return found

    def _half_read(self, bound: Bound) -> "HalfRead | None":
        select, values = bound
        key = key_of(select, values) if isinstance(select, Select) and select.table else None
        if key is None:
            return None
        replica = self.replicas[self.world.dice.randrange(REPLICAS)]
        seen = replica.partition(cast("Select", select).table.name, key)  # type: ignore[union-attr]
        copy = Partition(dict(seen.rows), seen.deleted_at, seen.deleted_on, dict(seen.ranges))
        return HalfRead(replica, copy)

    def _forget(self, table: str, key: Key, replicas: Sequence[Replica]) -> None:
        if self.nodes.is_aging:
            for replica in replicas:
                self.nodes.forget(replica, table, key)

    def _merged(self, table: str, key: Key, replicas: Sequence[Replica]) -> Partition:
        return self.nodes.merged(table, key, replicas)

    def _quorum(self, up: list[Replica]) -> list[Replica]:
        if len(up) == QUORUM:
            return up
        left_out = self.world.dice.randrange(len(up))
        return [replica for place, replica in enumerate(up) if place != left_out]

    # Plain writes

    def _write(self, work: Sequence[tuple[Write, Sequence[Any]]], up: list[Replica], now_ms: int) -> None:
        # A write without a fixed timestamp carries the coordinator's time in microseconds.
        stamp = now_ms * 1000 + int(self.world.now * 1_000_000) % 1000
        mutation = to_mutation(work, now_ms, stamp, self.world.now)
        if mutation.table == "waiting":
            self._note_homes(mutation)
        dice, odds = self.world.dice, self.odds
        alone = self._alone_at(mutation) if self.is_faulty and odds.parts else None
        if alone is not None and alone.is_up:
            self._spread(mutation, [alone])
            other = next(replica for replica in up if replica is not alone)
            if dice.random() < 0.3:
                other.take_over(mutation.table, mutation.key, mutation.partition, mutation.rows, _OUTLINE)
            raise WriteTimeout("one replica answered", write_type=WriteType.SIMPLE)
        if self.is_faulty and dice.random() < odds.partial:
            self._spread(mutation, [up[dice.randrange(len(up))]])
            raise WriteTimeout("one replica answered", write_type=WriteType.SIMPLE)
        quorum = up if dice.random() >= odds.slow_replica else self._quorum(up)
        self._spread(mutation, quorum)

    def _note_homes(self, mutation: Mutation) -> None:
        if mutation.deleted_at >= 0:
            self._deleted.add(mutation.key)
        for ck, row in mutation.rows.items():
            for place, body in enumerate(row.cells["bodies"][1]):
                self._homes.setdefault(body, []).append((mutation.key, ck, tuple(row.cells), place))

    def _alone_at(self, mutation: Mutation) -> Replica | None:
        """Return the one replica that a batch can reach; None if a quorum hears of it, as of other writes."""
        if mutation.table != "waiting" or not mutation.rows:
            return None
        place = mutation.key, *mutation.rows
        if place not in self._alone:
            dice = self.world.dice
            self._alone[place] = dice.choice(self.replicas) if dice.random() < self.odds.parts else None
        return self._alone[place]

    def _spread(self, mutation: Mutation, at_once: Sequence[Replica]) -> None:
        dice, odds = self.world.dice, self.odds
        for replica in self.replicas:
            if replica in at_once:
                replica.apply(mutation)
            elif not self.is_faulty or dice.random() >= odds.missed:
                self.nodes.hint(replica, mutation, dice.random() * odds.late_s)

    # Transactions

    def _paxos_of(self, place: tuple[str, Key] | None) -> _Paxos:
        if place is None:
            raise ValueError("a transaction names its partition")
        found = self._paxos.get(place)
        if found is None:
            found = self._paxos[place] = _Paxos()
        return found

    def _finish_last(self, table: str, key: Key, quorum: Sequence[Replica]) -> None:
        paxos = self._paxos.get((table, key))
        if paxos and paxos.latest and not self._is_forgotten(table, paxos):
            for replica in quorum:
                replica.apply(paxos.latest)

    def _is_forgotten(self, table: str, paxos: _Paxos) -> bool:
        """Tell whether what was decided last is older than nodes remember it: as long as a deletion."""
        return self.nodes.is_aging and self.world.now - paxos.decided_on > self.nodes.grace_s(table)

    def _transact(
        self, work: Sequence[tuple[Write, Sequence[Any]]], up: list[Replica], now_ms: int
    ) -> Answer:
        place = place_of(work[0])
        paxos = self._paxos_of(place)
        table, key = cast("tuple[str, Key]", place)
        quorum = self._quorum(up)
        self._forget(table, key, quorum)
        self._finish_last(table, key, quorum)
        merged = self._merged(table, key, quorum)
        for replica in quorum:  # a transaction reads whole rows, but only those with conditions
            replica.take_over(table, key, merged, conditioned_rows(work), None)
        refusal = refusal_of(work, merged)
        if refusal is not None:
            return refusal
        self._ballot += 1
        paxos.decided_on = self.world.now
        paxos.latest = mutation = to_mutation(work, now_ms, self._ballot, self.world.now)
        self._applied(mutation)
        if self.is_faulty and self.world.dice.random() < self.odds.partial:
            # Decided, but written by one replica at most: the next transaction or SERIAL read finishes it.
            self._spread(mutation, [quorum[0]] if self.world.dice.random() < 0.5 else [])
            raise WriteTimeout("decided, not written", write_type=WriteType.CAS)
        self._spread(mutation, quorum)
        return Answer(("[applied]",), [(True,)])
