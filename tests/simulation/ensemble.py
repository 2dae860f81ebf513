"""The coordination service of one history: claims and hungry poppers, and sessions that end without a word.

Owns what a ZooKeeper ensemble promises little of: a session that is over is noticed late by its own process,
wake-ups get lost. Claims are there to spare work only, so a *generous* ensemble grants every claim to
everybody, and no promise may break.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from scheduler import Process, World

from cassq.coordination.port import takes, takes_all_of
from cassq.errors import CoordinationUnavailableError


@dataclass(frozen=True, slots=True)
class SeatOdds:
    """How likely each fault is.

    Attributes:
        refused: a claim ends in an error, granted or not.
        wake_lost: a wake-up is believed delivered and is not.
        notice_s: so long at most until a process hears that its session is over.
        doubted: a process that stood still takes its session for lost, though it lasts.
    """

    refused: float = 0.0
    wake_lost: float = 0.0
    notice_s: float = 3.0
    doubted: float = 0.0


@dataclass(slots=True, eq=False)
class _Hungry:
    seat: "Seat"
    wake: Callable[[], None]
    on_crowded: Callable[[], None] | None
    was_crowded: bool = False


@dataclass(slots=True)
class Ensemble:
    """What the service knows."""

    world: World
    odds: SeatOdds
    is_generous: bool = False
    is_faulty: bool = True
    say: Callable[[tuple[str, UUID], str], None] = lambda _what, _who: None
    slip: Callable[[Process], str] = lambda _process: ""
    claims: dict[tuple[str, UUID], tuple["Seat", str]] = field(default_factory=dict)
    lines: dict[str, dict[str, _Hungry]] = field(default_factory=dict)

    def expire(self, seat: "Seat") -> None:
        """End a session: others may have its claims now, its process hears of it later."""
        self.claims = {key: held for key, held in self.claims.items() if held[0] is not seat}
        for line in self.lines.values():
            for popper in [popper for popper, hungry in line.items() if hungry.seat is seat]:
                seat.stranded.append(line.pop(popper).wake)
        seat.is_lost = True
        if seat.is_prompt:
            seat.notice(seat.epoch)
            return
        self.world.after(self.world.dice.random() * self.odds.notice_s, partial(seat.notice, seat.epoch))

    def tell_crowd(self, queue: str) -> None:
        """Tell hungry poppers that they are not alone any more."""
        line = self.lines.get(queue, {})
        for hungry in list(line.values()):
            is_crowded = len(line) > 1
            if is_crowded and not hungry.was_crowded and hungry.on_crowded:
                hungry.seat.call_soon(hungry.on_crowded)
            hungry.was_crowded = is_crowded


class Seat:
    """One process's session; implements the coordination port.

    Attributes:
        is_prompt: it knows that its session is over before others have its claims, as the adapters see to by
            elapsed time; what rests on that is the name of a reader.
    """

    def __init__(self, ensemble: Ensemble, process: Process) -> None:
        self._ensemble = ensemble
        self._world = ensemble.world
        self._process = process
        self._held: set[tuple[str, UUID, str]] = set()
        self.stranded: list[Callable[[], None]] = []
        self.is_lost = False
        self.is_prompt = False
        self.epoch = 0
        self._is_closed = False

    def notice(self, epoch: int) -> None:
        """Hear that a session was over: a new one begins, without claims."""
        if epoch != self.epoch:
            return  # that was heard of before
        self.epoch += 1
        self.is_lost = False
        self._held.clear()
        stranded, self.stranded = self.stranded, []
        for wake in stranded:
            self.call_soon(wake)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run a callback of this process on a thread of its own."""
        delay = self._world.dice.random() * 0.01
        self._world.after(delay, partial(self._world.spawn, self._process, "callback", callback))

    def may_take(self) -> bool:
        return True

    def _travel(self) -> bool:
        """Take the way to the service, which is where a lost session is noticed at the latest.

        Returns: whether nobody hears what the service answers.
        """
        self._world.sleep(self._world.dice.random() * 0.004)
        slip = self._ensemble.slip(self._process)
        if slip in ("refused", "lost"):
            raise CoordinationUnavailableError("the request did not arrive")
        if self._process.is_cut:
            raise CoordinationUnavailableError("the network is cut")
        if self.is_lost:
            self.notice(self.epoch)
            raise CoordinationUnavailableError("the session had ended")
        return bool(slip)

    def claim(self, queue: str, pipe: UUID, holder: str) -> bool:
        world, ensemble = self._world, self._ensemble
        is_unheard = self._travel()
        is_refused = ensemble.is_faulty and world.dice.random() < ensemble.odds.refused
        if is_refused and world.dice.random() < 0.5:
            raise CoordinationUnavailableError("the claim did not arrive")
        is_refused = is_refused or is_unheard
        if ensemble.is_generous:
            return True
        standing = ensemble.claims.setdefault((queue, pipe), (self, holder))
        if standing != (self, holder):
            ensemble.say(("is refused the claim on", pipe), self._process.name)
            return False
        ensemble.say(("claims", pipe), self._process.name)
        if is_refused and (queue, pipe, holder) not in self._held:
            world.after(
                world.dice.random() * ensemble.odds.notice_s, partial(self._give_up, queue, pipe, holder)
            )
            raise CoordinationUnavailableError("nobody heard whether the claim was granted")
        self._held.add((queue, pipe, holder))
        return True

    def _give_up(self, queue: str, pipe: UUID, holder: str) -> None:
        # The adapters delete a claim whose reply was lost, unless it was asked for again meanwhile.
        is_doubtful = (queue, pipe, holder) not in self._held
        if is_doubtful and self._ensemble.claims.get((queue, pipe)) == (self, holder):
            del self._ensemble.claims[queue, pipe]

    def release(self, queue: str, pipe: UUID, holder: str) -> None:
        self._world.maybe_switch()
        self._ensemble.say(("releases", pipe), self._process.name)
        self._held.discard((queue, pipe, holder))
        if self._ensemble.claims.get((queue, pipe)) == (self, holder):
            del self._ensemble.claims[queue, pipe]

    def is_held(self, queue: str, pipe: UUID, holder: str) -> bool:
        ensemble = self._ensemble
        if ensemble.is_generous:
            return True
        is_doubted = ensemble.is_faulty and self._world.dice.random() < ensemble.odds.doubted
        return (queue, pipe, holder) in self._held and not is_doubted

    def holders(self, queue: str) -> Mapping[UUID, str]:
        return {pipe: held[1] for (of, pipe), held in self._ensemble.claims.items() if of == queue}

    def announce_hunger(
        self,
        queue: str,
        popper: str,
        wake: Callable[[], None],
        *,
        on_crowded: Callable[[], None] | None = None,
    ) -> int:
        is_unheard = self._travel()
        line = self._ensemble.lines.setdefault(queue, {})
        line[popper] = _Hungry(self, wake, on_crowded)
        standing = list(line)
        before = sum(takes_all_of(other, popper) for other in standing[: standing.index(popper)])
        self._ensemble.tell_crowd(queue)
        if is_unheard:
            raise CoordinationUnavailableError("nobody heard of the place in the line")
        return before

    def withdraw_hunger(self, queue: str, popper: str) -> None:
        self._ensemble.lines.get(queue, {}).pop(popper, None)
        self._ensemble.tell_crowd(queue)

    def hungry(self, queue: str, besides: str = "", *, types: int = 0) -> int:
        return len(self._hungry(queue, besides, types))

    def _hungry(self, queue: str, besides: str, types: int) -> list[str]:
        line = self._ensemble.lines.get(queue, {})
        return [popper for popper in line if popper != besides and takes(popper, types)]

    def wake(self, queue: str, count: int, besides: str = "", *, types: int = 0) -> int:
        world, ensemble = self._world, self._ensemble
        world.maybe_switch()
        line = ensemble.lines.get(queue, {})
        woken = self._hungry(queue, besides, types)[:count]
        for popper in woken:
            hungry = line.pop(popper)
            if not ensemble.is_faulty or world.dice.random() >= ensemble.odds.wake_lost:
                hungry.seat.call_soon(hungry.wake)
        return len(woken)

    def close(self) -> None:
        self._is_closed = True
        self._ensemble.claims = {
            key: held for key, held in self._ensemble.claims.items() if held[0] is not self
        }
        for line in self._ensemble.lines.values():
            for popper in [popper for popper, hungry in line.items() if hungry.seat is self]:
                del line[popper]
