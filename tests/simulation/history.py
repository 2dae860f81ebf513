"""One simulated history: the library's own actors in simulated processes, until the queue is empty.

Owns who is there, what happens to them, and what must be true in the end. What must not break: a history
depends on its plan alone, so that a seed that fails fails again.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from zlib import crc32

import scheduler
import threads
from actors import crew_of, place_of, pop_all, purge_all, push_all, reap_all, unknown_transactions
from bulk_actors import Decisions, hurried, judge_batches, write_all
from cancel_actors import cancel_some
from checkpoint import STREAM, Checkpoint
from client_actors import Service, lease_and_settle, serve
from cluster import EPOCH_MS, Cluster
from due_watch import FAR_S, DueWatch, hastened
from ensemble import Ensemble, Seat
from expiry_watch import ExpiryWatch, giving_back
from hands import Hands, listening
from key_watch import KeyWatch
from letter_actors import deal_with_letters
from move_watch import MoveWatch
from moving_actors import move_some
from operator_actors import (
    SETTLE_S,
    Steering,
    generation_of,
    judge_steering,
    pop_through,
    push_through,
    steer,
    steer_at_last,
)
from plan import LEASE_S, Plan, Slip
from recurrence_watch import RecurrenceWatch, is_of_schedule, name_of
from recurring_actors import end_schedules, set_schedules
from replicas import Mutation
from scheduler import Process, SimulationError, World
from session import SimulatedSession
from type_watch import TypeWatch

from cassq import workers
from cassq.bulk import reader_claim
from cassq.catalog import cached_record
from cassq.errors import CassqError, OutcomeUnknownError, QueueNotFoundError, UnavailableError
from cassq.model.ids import MessageId, id_time_ms
from cassq.model.pipe import PipeEntry
from cassq.model.shelf import Shelf
from cassq.observing.dead_letters import DeadMessage
from cassq.pipes import window_steps
from cassq.popping.arrival_rate import ArrivalRate
from cassq.popping.delivery import Delivery
from cassq.pushing import pusher
from cassq.queue import Queue
from cassq.runtime.clock import SystemClock
from cassq.storage.cassandra.statement import Call
from cassq.storage.cassandra.storage import CassandraStorage
from cassq.store import Adapters, Store
from cassq.verification.checker import judge
from cassq.verification.ledger import Kind, Line
from cassq.verification.verdict import Verdict

#: Pushers are done after so long at most, and all that is left is healed after so long.
FAULTS_S = 6.0
HEALED_S = 30.0

#: So long a message of a slot takes at most that must be claimed anew for each.
SLOT_TURN_S = 0.5

#: So many of the looks at the record find their process paused, in a history that is about that.
PAUSED_LOOKS = 0.1

#: So long a driver waits for the claim on its name.
PATIENCE_S = 2.0

#: With these a message has ended, or is to be dead.
_ENDINGS = {Kind.COMMITTED, Kind.CANCELLED, Kind.GIVEN_UP}

#: A look at the queue while it drains.
LOOK_S = 0.15


class ProcessClock(SystemClock):
    """A process's own clock: the world's, from a beginning of its own, less the pauses that it missed."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def now(self) -> float:
        return self._world.now + self._process.offset_s - self._process.missed_s

    def _read_day(self) -> float:
        return self._world.now + self._process.wall_offset_s - self._process.unset_s

    def wait(self, condition: threads.Condition, seconds: float | None) -> None:
        condition.wait(seconds)


@dataclass(slots=True)
class Outcome:
    """How a history ended.

    Attributes:
        broken: which promises did not hold, in words; none if all is well.
        trace: what happened, line by line, when it was asked for.
    """

    plan: Plan
    broken: list[str]
    verdict: Verdict | None = None
    seconds: float = 0.0
    requests: int = 0
    trace: list[tuple[float, str, Any]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)


def run(plan: Plan, *, is_traced: bool = False) -> Outcome:
    """Run one history and judge it."""
    world = World(plan.seed, preempt=plan.preempt)
    scheduler.enter(world)
    # Names that count up through a process would make the second history differ from the first.
    numbers, workers._numbers = workers._numbers, itertools.count(1)
    is_fast = ArrivalRate.is_fast
    window_messages, window_steps.WINDOW_MESSAGES = window_steps.WINDOW_MESSAGES, plan.window_messages
    refresh_s = cached_record.REFRESH_S
    push_timeout, pusher.PUSH_TIMEOUT = pusher.PUSH_TIMEOUT, timedelta(seconds=plan.put_back_s)
    patience_s, reader_claim.NAME_PATIENCE_S = reader_claim.NAME_PATIENCE_S, PATIENCE_S
    cached_record.REFRESH_S = 0.0 if plan.pauses == "heard" else refresh_s
    if plan.flows:
        ArrivalRate.is_fast = lambda pace, now: world.dice.random() < plan.flows or is_fast(pace, now)  # type: ignore[method-assign]
    stage = _Stage(plan, world, is_traced=is_traced)
    try:
        threads.install()
        with listening(stage.hands), hurried(), giving_back(stage), hastened(plan):
            stage.play()
        return stage.outcome()
    finally:
        workers._numbers = numbers
        window_steps.WINDOW_MESSAGES = window_messages
        cached_record.REFRESH_S = refresh_s
        reader_claim.NAME_PATIENCE_S = patience_s
        pusher.PUSH_TIMEOUT = push_timeout
        ArrivalRate.is_fast = is_fast  # type: ignore[method-assign]
        scheduler.leave()


class _Stage:
    """One history while it runs."""

    def __init__(self, plan: Plan, world: World, *, is_traced: bool) -> None:
        self.plan = plan
        self.world = world
        self.lines: list[Line] = []
        self.trace: list[tuple[float, str, Any]] = []
        self.is_traced = is_traced
        self.is_over = False
        self.is_healed = False
        self.broken: list[str] = []
        self.verdict: Verdict | None = None
        self.cast: dict[str, list[Process]] = {
            "pusher": [],
            "popper": [],
            "reaper": [],
            "operator": [],
            "reader": [],
            "client": [],
            "judge": [],
        }
        self.decisions = Decisions(lambda: self.cluster)
        self.cluster = Cluster(
            world,
            odds=plan.odds,
            skews_ms=plan.skews_ms,
            timeout_s=plan.timeout_s,
            day_s=plan.day_s,
            watch=self._watch if is_traced else None,
            stop=self._stop,
            applied=self._hear_applied,
            slip=self._slip,
        )
        self.ensemble = Ensemble(
            world, plan.seat_odds, is_generous=plan.is_generous, say=self.say, slip=self._slip
        )
        self._calls = 0
        self.settings = plan.settings
        self.steering = Steering()
        self.healed_at = 0.0
        self.seats: dict[str, Seat] = {}
        self.lease_s = LEASE_S
        self.reader_lease_s = plan.reader_lease_s
        self.checkpoint = Checkpoint()
        self.told_of_others: set[tuple[str, int]] = set()
        self._committed: set[str] = set()
        self.haste = plan.haste
        self.patiences_s = plan.patiences_s
        self.max_attempts = plan.max_attempts
        self.habits = plan.habits
        self.consumers = plan.consumers
        self.hands = Hands(self._note_held)
        self.unknown: dict[str, list[CassqError]] = {}
        self.ids: dict[str, MessageId] = {}
        self.soon = plan.soon
        self.services: list[Service] = []
        self.expiry = ExpiryWatch(self, self.cluster.body_at, plan)
        self.types = TypeWatch(plan, self.broken)
        self.keys = KeyWatch(plan, world, self.broken)
        self.rests_s = plan.rests_s
        self.moves = MoveWatch(plan, world, self.lines, self.broken)
        self.dues = DueWatch(plan, world, self.moves, self.broken)
        self.recurring = RecurrenceWatch(plan, world, self.lines, self.broken)
        #: What is left has so long after the last fault: nothing is delivered before it is due.
        leads_s = (*plan.leads_s, *plan.moved_leads_s, *plan.rests_s)
        self._healed_s = HEALED_S + max([lead_s for lead_s in leads_s if lead_s < FAR_S], default=0.0)
        self._healed_s += plan.soon_s if self.recurring.is_on else 0.0
        # Where a popper holds but one of a slot, each message takes a claim, and a rest, of its own.
        self._healed_s += SLOT_TURN_S * plan.pushers * plan.messages if plan.held_max == 1 else 0.0
        self._done: set[str] = set()
        self._is_at_rest = False

    # The play

    def play(self) -> None:
        judge_process = self.process("judge", "judge")
        main = self.world.spawn(judge_process, "main", self._main)
        try:
            leads_s = (*self.plan.leads_s, *self.plan.moved_leads_s)
            self.world.run(main, FAULTS_S + HEALED_S + self._healed_s + 60 + 3 * max(leads_s, default=0.0))
        except SimulationError as error:
            self.broken.append(str(error))
        finally:
            self.world.end()
        self.broken += self.world.trouble

    def outcome(self) -> Outcome:
        return Outcome(
            self.plan,
            self.broken,
            self.verdict,
            self.world.now,
            self.cluster.requests,
            self.trace,
            self.world.errors,
        )

    def priority_of(self, bodies: Sequence[str]) -> int:
        """Return with which priority messages are pushed together."""
        return crc32(bodies[0].encode()) % self.plan.priorities

    def _main(self) -> None:
        self.cluster.is_faulty = self.ensemble.is_faulty = False
        first = self.store(self.cast["judge"][0])
        first.queue("q", **self.plan.settings)
        self.cluster.is_faulty = self.ensemble.is_faulty = True
        pushing = [self._start("pusher", n, self._push) for n in range(self.plan.pushers)]
        for number in range(self.plan.poppers):
            self._start("popper", number, self._pop)
        for number in range(self.plan.reapers):
            self._start("reaper", number, partial(reap_all, self))
        self._start_operators()
        if self.plan.readers:
            self._start_streams()
        for number in range(self.plan.clients):
            self._start("client", number, partial(lease_and_settle, self))
        if self.recurring.is_on:
            self._start("operator", len(self.cast["operator"]), self._set_schedules)
        for blow in self.plan.blows:
            self.world.after(blow.at, partial(self._strike, blow))
        begun = self.world.now
        while self.world.now < begun + max(FAULTS_S, self.plan.faults_s) and not (
            self.world.now >= begun + self.plan.faults_s
            and all(self.plan.lasting_s > 0 or task.is_done or task.process.is_dead for task in pushing)
        ):
            self.world.sleep(LOOK_S)
        self._heal()
        self._drain(first)

    def _start_operators(self) -> None:
        self._start("operator", 0, partial(purge_all, self, times=self.plan.purges))
        for number in range(1, self.plan.operators + 1):
            self._start("operator", number, self._deal_with_letters)
        if self.plan.steers:
            self._start("operator", self.plan.operators + 1, self._steer)
        if self.plan.cancels:
            self._start("operator", len(self.cast["operator"]), self._cancel)
        for _ in range(self.plan.movers if self.plan.moves else 0):
            self._start("operator", len(self.cast["operator"]), self._move)

    def _heal(self) -> None:
        self.cluster.heal()
        self.ensemble.is_faulty = False
        self.is_healed = True
        self.healed_at = self.world.now
        self.steering.settled_at = 0.0 if self.plan.slip else self.world.now + SETTLE_S
        for role in self.cast.values():
            for process in role:
                process.is_cut = False
                self._thaw(process)
        self.say("all faults end", "world")

    def _drain(self, store: Store) -> None:
        """Wait until everything has ended, which it must without any help, and judge."""
        # A popper that died has nobody in its place; one at least is there to the end.
        if self.plan.lasting_s:
            if all(process.is_dead for process in self.cast["popper"]):
                self._start("popper", self.plan.poppers, self._pop)
            self._steer_at_last()
        queue = store.queue("q")
        if not self.plan.lasting_s:
            self._start("popper", self.plan.poppers, self._pop)
        self._start_who_is_missing()
        if self.recurring.is_on:
            self._end_schedules(queue)
        end = self.world.now + self._healed_s
        while (left := self._left(queue, store, end)) and self.world.now < end:
            self.world.sleep(LOOK_S)
            if self.dues.is_on and (rest_s := self._rest_while_far(store)):
                # All are awake before what that was for is due, and it has as long from then on as all else.
                end = max(end + rest_s, self.world.now + 2 * self.plan.near_s + self._healed_s)
        if left:
            self.broken.append(f"stuck: {left} {self._healed_s:g} s after the last fault")
        self.is_over = True
        self._judge(queue.stats(), queue.dead.peek(1000))
        if not left:
            self.broken += [
                f"left behind: {row}" for row in self.cluster.leftovers()
            ] or self.cluster.come_back()

    def _start_who_is_missing(self) -> None:
        if self.plan.clients:
            self._start("client", self.plan.clients, partial(lease_and_settle, self))
        if not self.plan.reapers:
            self._start("reaper", 0, partial(reap_all, self))

    def _end_schedules(self, queue: Queue) -> None:
        """Wait until all that schedules say is pushed, and delete them."""
        end = self.world.now + HEALED_S
        while any(self._works(process) for process in self.cast["operator"][1:]) or any(
            map(self.recurring.is_late, queue.schedules)
        ):
            if self.world.now > end:
                self.broken.append(f"stuck: nobody keeps {list(queue.schedules)}")
                break
            self.world.sleep(LOOK_S)
        end_schedules(self, queue)
        # What an operator sent last may land until then; it was told of no outcome.
        odds = self.plan.odds
        self.world.sleep(
            odds.late_s * (odds.late > 0) + odds.stall_s * (odds.stall > 0) + self.plan.timeout_s
        )
        if list(queue.schedules):
            self._end_schedules(queue)

    def _left(self, queue: Queue, store: Store, end: float) -> str:
        if any(self._works(process) for process in self.cast["pusher"] + self.cast["operator"][1:]):
            return "a pusher still pushes, or an operator puts letters back"
        pipes = store.storage.list_pipes("q").entries
        if self.plan.batches:
            pipes += store.storage.list_pipes("q", shelf=Shelf.STAGED).entries
        if self.plan.keys:
            pipes += store.storage.list_pipes("q", shelf=Shelf.KEYED).entries
        if self.dues.is_on or self.recurring.is_on:
            pipes += tuple(self._scheduled(store))
        if pipes and self.world.now > end:
            if any(blow.kind == "compact" for blow in self.plan.blows):
                # A node that hears of a deletion after others forgot it brings the entry back, again and
                # again where it is always so late. What has no head is nobody's pipe.
                pipes = [entry for entry in pipes if store.storage.load_pipe(entry.pipe)]
            return f"{len(pipes)} pipes, {queue.stats()}" if pipes else ""
        return f"{len(pipes)} pipes" if pipes else ""

    def _scheduled(self, store: Store) -> Iterator[PipeEntry]:
        shelves = [Shelf.SORTED, Shelf.SCHEDULED, Shelf.MOVED, Shelf.DUE]
        if self.plan.staged_s > HEALED_S:
            shelves.remove(Shelf.SORTED)  # what was staged in vain stays for longer than the history
        for shelf in shelves:
            yield from store.storage.list_pipes("q", shelf=shelf).entries

    def _rest_while_far(self, store: Store) -> float:
        """Stop everybody until what is left is near, where that is far; return how long that took."""
        scheduled = store.storage.list_pipes("q", shelf=Shelf.SCHEDULED).entries
        piles_at = [(id_time_ms(entry.pipe) - EPOCH_MS) / 1000 for entry in scheduled]
        ended = {line.message for line in self.lines if line.kind in _ENDINGS}
        until = min(
            [self.dues.rest_until(ended), *(at for at in piles_at if at > self.world.now + FAR_S / 2)]
        )
        rest_s = until - self.world.now - 2 * self.plan.near_s
        if not FAR_S / 2 < rest_s < math.inf or any(self._works(process) for process in self.cast["pusher"]):
            return 0.0
        resting = [
            process for role in self.cast.values() for process in role if role is not self.cast["judge"]
        ]
        self.say(f"sleeps for {rest_s:.0f} s", "world")
        self._is_at_rest = True
        for process in resting:
            self.world.freeze(process)
        self.world.sleep(rest_s)
        self._is_at_rest = False
        for process in resting:
            self.world.thaw(process)
        return rest_s

    def _works(self, process: Process) -> bool:
        return not process.is_dead and process.name not in self._done

    def _judge(self, stats: Any, letters: Iterable[DeadMessage]) -> None:
        for letter in letters:
            self.note("judge", Kind.DEAD_LETTER, [letter.body.decode()], **place_of(letter.message_id))
        self.verdict = verdict = judge(self.lines)
        verdict.reordered = self.keys.in_order(self.dues.in_order(verdict.reordered))
        if self.plan.clients:  # what one gave back that it never looked at the next one gets
            verdict.reordered = []
        if self.plan.lasting_s:
            steering = self.steering
            self.broken += judge_steering(steering, self.lines, self.plan.lasting_s, self.healed_at)
            # What a queue had that was deleted went with it.
            verdict.lost = {each for each in verdict.lost if generation_of(each) not in steering.doomed}
        self.broken += verdict.broken() + judge_batches(self.lines, self.told_of_others) + list(self._late())
        self.broken += self.decisions.unseen(self.lines)
        self.broken += self.recurring.judge()
        self.broken += self.moves.judge()
        told = sum(line.count for line in self.lines if line.kind is Kind.PURGED)
        dropped = self.expiry.told()
        cancelled = {line.message for line in self.lines if line.kind is Kind.CANCELLED} - dropped
        told += len(cancelled - verdict.committed - verdict.dead)
        # A commit of which nobody knows may land on what a purge ended: then it counts as committed.
        both = len(verdict.maybe_committed)
        gone = stats.purged + stats.expired
        if told > stats.purged + both or len(verdict.purged) > gone:
            self.broken.append(
                f"totals: {stats.purged} purged; {told} were told, {len(verdict.purged)} are missing"
            )
        if not len(dropped) <= stats.expired + both <= len(self.expiry.sent) + both:
            self.broken.append(f"totals: {stats.expired} expired; {len(dropped)} were told")
        acknowledged, sure = (
            len(verdict.acknowledged),
            verdict.acknowledged | verdict.delivered | verdict.dead,
        )
        if self.steering.doomed:  # the figures are those of the last queue, and of what came late into it
            sure = {each for each in sure if generation_of(each) not in self.steering.doomed}
        kinds = Counter(line.kind for line in self.lines)
        least = len(sure) + kinds[Kind.PUT_BACK]
        most = len(verdict.attempted - verdict.refused) + kinds[Kind.PUTTING_BACK]
        if not least <= stats.pushed <= most:
            self.broken.append(
                f"totals: {stats.pushed} pushed, of {acknowledged} acknowledged, not {least} to {most}"
            )
        ended = stats.committed + stats.dead + gone
        # What expires may become a dead letter that was never popped.
        popped = stats.committed + (0 if self.expiry.is_on else stats.dead)
        if stats.pushed != ended or not popped <= stats.popped <= ended:
            self.broken.append(f"totals do not add up: {stats}")

    def _late(self) -> Iterator[str]:
        """Tell which messages waited for too long, where no fault explains that."""
        came_at: dict[str, float] = {}
        for line in self.lines:
            if line.kind is Kind.DELIVERED:
                came_at.setdefault(line.message, line.at)
        for line in self.lines if self.plan.prompt_s else ():
            if line.kind is Kind.ACKNOWLEDGED and not is_of_schedule(line.message):
                ready_at = self.dues.ready_at(line.message, line.at)
                waited_s = came_at.get(line.message, self.world.now) - ready_at
                if self.dues.is_late(line.message, waited_s):
                    yield f"late: {line.message} waited for {waited_s:.1f} s"

    # Processes

    def process(self, role: str, name: str) -> Process:
        dice = self.world.dice
        offsets = self.plan.wall_offsets_s
        process = Process(
            name,
            offset_s=dice.random() * 1000,
            wall_offset_s=offsets[sum(map(len, self.cast.values())) % len(offsets)],
        )
        if role == "pusher":
            process.wall_offset_s -= self.plan.lates_s[len(self.cast[role]) % len(self.plan.lates_s)]
        self.cast[role].append(process)
        return process

    def store(self, process: Process) -> Store:
        seat = self.seats[process.name] = Seat(self.ensemble, process)
        storage = CassandraStorage(SimulatedSession(self.cluster, process))
        self.unknown[process.name] = unknown_transactions(storage)
        if self.expiry.is_on:
            self.expiry.guard(process, storage)
        if self.dues.is_on and process in self.cast["pusher"]:
            self.dues.guard(storage)
        if process in self.cast["reader"]:
            seat.is_prompt = True
            self.checkpoint.guard(storage, self.broken.append)
        if self.plan.pauses == "heard" and process in self.cast["pusher"]:
            storage.glance_queue = partial(self._stop_and_look, process, storage.glance_queue)  # type: ignore[method-assign]
        return Store(
            process.name, Adapters(storage, seat, seat.close), clock=ProcessClock(self.world, process)
        )

    def _stop_and_look(self, process: Process, look: Callable[[str], Any], name: str) -> Any:
        if not process.is_frozen and self.world.dice.random() < PAUSED_LOOKS:
            self._stop(process, "freeze", 2.5 * self.plan.push_age_s + 2 * self.plan.grace_s)
            self.world.sleep(0.0)  # and there it stands
        return look(name)

    def open(self, process: Process) -> tuple[Store, Queue]:
        """Open the queue for an actor, however long that takes."""
        store = self.store(process)
        while True:
            try:
                return store, store.find_queue("q")
            except (UnavailableError, OutcomeUnknownError):
                self.world.sleep(0.1)
            except QueueNotFoundError:
                if not self.plan.lasting_s:
                    raise
                self.world.sleep(0.1)

    def _push(self, process: Process) -> None:
        if self.plan.batches:
            write_all(self, process, self.plan.batches)
        elif self.plan.lasting_s:
            push_through(self, process, self.plan.messages)
        else:
            push_all(self, process, self.plan.messages)
        self._done.add(process.name)

    def _pop(self, process: Process) -> None:
        if self.plan.lasting_s:
            pop_through(self, process)
        elif self.plan.clients:
            serve(self, process)
        else:
            pop_all(self, process)

    def _steer(self, process: Process) -> None:
        steer(self, process, self.plan.steers)
        self._done.add(process.name)

    def _steer_at_last(self) -> None:
        """Have an operator bring the queue in order, pause and delete it, now that nothing fails."""
        while any(self._works(process) for process in self.cast["operator"][1:]):
            self.world.sleep(LOOK_S)
        acts, prompt_s = self.plan.last_acts, self.plan.lasting_s
        number = len(self.cast["operator"])
        task = self._start("operator", number, lambda process: steer_at_last(self, process, acts, prompt_s))
        while not task.is_done:
            self.world.sleep(LOOK_S)
        self._done.add(task.process.name)

    def _deal_with_letters(self, process: Process) -> None:
        deal_with_letters(self, process, self.plan.deals)
        self._done.add(process.name)

    def _cancel(self, process: Process) -> None:
        cancel_some(self, process, self.plan.cancels, self.plan.cancels_in_a_row)
        self._done.add(process.name)

    def _move(self, process: Process) -> None:
        move_some(self, process, self.plan.moves)
        self._done.add(process.name)

    def _set_schedules(self, process: Process) -> None:
        plan = self.plan
        set_schedules(self, process, plan.schedules, plan.periods_s, plan.alterations)
        self._done.add(process.name)

    def _hear_applied(self, mutation: Mutation) -> None:
        self.decisions.hear(mutation)
        self.recurring.hear(mutation)

    def _start(self, role: str, number: int, work: Callable[[Process], None]) -> scheduler.Task:
        process = self.process(role, f"{role}{number}")
        return self.world.spawn(process, "main", partial(work, process))

    def _start_streams(self) -> None:
        from reader_actors import supervise  # it brings Spark along, which few histories need

        for number in range(self.plan.readers):
            self.world.spawn(self.cast["judge"][0], f"supervisor{number}", partial(supervise, self))

    def start_driver(self, work: Callable[[Process], None]) -> tuple[Process, scheduler.Task]:
        """Start one process of the stream."""
        task = self._start("reader", len(self.cast["reader"]), work)
        return task.process, task

    def _strike(self, blow: "Any") -> None:
        if self.is_over or not self.cluster.is_faulty:
            return
        if blow.kind == "compact":
            self.say("begin to forget deletions that are old enough", "nodes")
            self.cluster.nodes.begin_aging()
            return
        if blow.kind == "lost":
            if self.cluster.nodes.lose(blow.target, blow.seconds):
                self.say("is lost", f"node{blow.target}")
            return
        if blow.kind == "node":
            if self.cluster.nodes.stop(blow.target):
                self.say("goes down", f"node{blow.target}")
                self.world.after(blow.seconds, partial(self.cluster.nodes.start, blow.target))
            return
        process = self.cast[blow.role][blow.target]
        if blow.kind == "session":
            self.say("loses its session", process.name)
            self.ensemble.expire(self.seats[process.name])
        elif blow.kind == "cut":
            self.say("is cut off", process.name)
            process.is_cut = True
            self.world.after(blow.seconds, partial(setattr, process, "is_cut", False))
        else:
            self._stop(process, blow.kind, blow.seconds)

    def _stop(self, process: Process, how: str, seconds: float | None = None) -> None:
        if process.is_dead or process in self.cast["judge"] or self.is_over or not self.cluster.is_faulty:
            return
        if how == "crash":
            self.say("dies", process.name)
            self.world.kill(process)
            for each in crew_of(process, self.plan.consumers):
                self.lines.append(Line(self.world.now, each.name, Kind.DIED))
            self.ensemble.expire(self.seats[process.name])
            return
        if seconds is None:
            seconds = self.world.dice.choice((0.1, 0.6, self.plan.push_age_s + self.plan.grace_s + 0.2))
        self.say(f"freezes for {seconds:.1f} s", process.name)
        process.stopped_at = self.world.now
        self.world.freeze(process)
        if process in self.cast["popper"]:
            for consumer in crew_of(process, self.consumers):
                # Others end its window, and it gives back what it had left of that.
                self.note(consumer.name, Kind.CLOSING, [""])
        if self.world.dice.random() < 0.7:
            self.ensemble.expire(self.seats[process.name])
        self.world.after(seconds, partial(self._thaw, process))

    def _thaw(self, process: Process) -> None:
        if process.is_frozen and not (process.is_dead or self._is_at_rest):
            self.say("thaws", process.name)
            missed_s = self.world.now - process.stopped_at
            process.missed_s += missed_s if self.plan.pauses else 0.0
            process.unset_s += missed_s if self.plan.pauses == "heard" else 0.0
            self.world.thaw(process)

    def _slip(self, process: Process) -> str:
        """Tell how this call of a process is to fail, if it is the one."""
        slip = self.plan.slip
        if slip is None or process is not self._who_slips(slip):
            return ""
        self._calls += 1
        if self._calls != slip.call:
            return ""
        self.say(f"has a call fail: {slip.how}", process.name)
        self.steering.slipped = self.world.now, self.world.now + self.plan.timeout_s
        return slip.how

    def _who_slips(self, slip: Slip) -> Process | None:
        role = self.cast[slip.role]
        return role[slip.target] if slip.target < len(role) else None

    # What is written down

    def say(self, words: Any, who: str) -> None:
        if self.is_traced:
            self.trace.append((self.world.now, who, words))

    def _watch(self, process: Process, call: Call, work: Any, answer: object) -> None:
        self.trace.append((self.world.now, process.name, (call, work, answer)))

    def _note_held(self, who: str, kind: Kind, delivery: Delivery, left_s: float) -> None:
        until = self.world.now + left_s if kind is Kind.EXTENDED else 0.0
        if kind is Kind.EXTENDED:
            self.keys.note_extended(name_of(delivery), until)
        if who == STREAM and not self._is_news(kind, delivery):
            return
        place = {} if who == STREAM else place_of(delivery.message_id)
        self.note(who, kind, [name_of(delivery)], attempt=delivery.attempt, until=until, **place)

    def _is_news(self, kind: Kind, delivery: Delivery) -> bool:
        """Tell whether a driver's commit or extension is to be noted: it may commit again, also in vain."""
        done = f"{name_of(delivery)} {delivery.attempt}"
        if kind is not Kind.COMMITTED:
            return kind is Kind.EXTENDED
        is_new = done not in self._committed
        self._committed.add(done)
        return is_new

    def note(self, who: str, kind: Kind, bodies: Iterable[str], at: float | None = None, **more: Any) -> None:
        for body in bodies:
            line = Line(self.world.now if at is None else at, who, kind, body, **more)
            self.lines.append(line)
            self.say(line, who)
            if kind in (Kind.ACKNOWLEDGED, Kind.PUT_BACK):
                put_back = sum(line.kind is Kind.PUT_BACK and line.message == body for line in self.lines)
                if not self.cluster.is_kept(body.encode(), 1 + put_back):
                    self.broken.append(f"acknowledged, and whole on no quorum: {body}")
