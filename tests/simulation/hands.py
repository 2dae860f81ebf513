"""What consumers have in their hands, run by run: hears how grouped commits end and how long leases last.

Owns what no call tells a consumer: a commit of a group is written after the call has returned, and a lease is
extended for a whole run, by whoever asks. Heard where both are done, in `HeldRun`. What must not break: it
notes what came of a call, and changes nothing about it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cassq.errors import DeliveryExpiredError, OutcomeUnknownError
from cassq.model.ranges import Ranges
from cassq.pipes.held_run import HeldRun
from cassq.popping.commits import Commit
from cassq.popping.delivery import Delivery
from cassq.verification.ledger import Kind

#: Notes a line: who, which kind, of which delivery, and for how long its lease runs, where it was extended.
Note = Callable[[str, Kind, Delivery, float], None]


@dataclass(slots=True)
class _Held:
    who: str
    delivery: Delivery
    is_grouped: bool = False


class Hands:
    """All deliveries of a history, by run and number."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._held: dict[HeldRun, dict[int, _Held]] = {}

    def give(self, who: str, deliveries: list[Delivery]) -> None:
        """Hear that a consumer was handed these."""
        for each in deliveries:
            self._held.setdefault(each.run, {})[each.seq] = _Held(who, each)

    def group(self, deliveries: list[Delivery]) -> None:
        """Hear that these were handed over to be committed with others, later."""
        for each in deliveries:
            self._held[each.run][each.seq].is_grouped = True

    def refuse(self, deliveries: list[Delivery]) -> None:
        """Note that these were not taken over: their lease had ended."""
        self._end([self._held[each.run][each.seq] for each in deliveries], Kind.EXPIRED)

    def flush(self, who: str) -> None:
        """Note that everything that a consumer handed over is committed, but for what was told otherwise."""
        for held in self._held.values():
            self._end([one for one in held.values() if one.who == who], Kind.COMMITTED)

    def hear_commit(self, run: HeldRun, parts: Ranges, kind: Kind) -> None:
        """Hear how the commit of some messages of a run ended."""
        held = self._held.get(run, {})
        self._end([one for seq, one in held.items() if seq in parts], kind)

    def hear_extension(self, run: HeldRun) -> None:
        """Hear that the lease of a run has begun anew."""
        for one in self._held.get(run, {}).values():
            self._note(one.who, Kind.EXTENDED, one.delivery, run.left_s)

    def _end(self, ended: list[_Held], kind: Kind) -> None:
        for one in ended:
            if one.is_grouped:
                one.is_grouped = False
                self._note(one.who, kind, one.delivery, 0.0)


@contextmanager
def listening(hands: Hands) -> Iterator[None]:
    """Have `hands` hear of every commit and extension, meanwhile."""
    try_once, extend = Commit.try_once, HeldRun.extend

    def try_and_tell(commit: Commit) -> bool:
        try:
            is_written = try_once(commit)
        except DeliveryExpiredError:
            hands.hear_commit(commit.run, commit.parts, Kind.EXPIRED)
            raise
        except OutcomeUnknownError:
            hands.hear_commit(commit.run, commit.parts, Kind.UNKNOWN_COMMIT)
            raise
        if is_written:
            hands.hear_commit(commit.run, commit.parts, Kind.COMMITTED)
        return is_written

    def extend_and_tell(run: HeldRun) -> None:
        extend(run)
        hands.hear_extension(run)

    Commit.try_once, HeldRun.extend = try_and_tell, extend_and_tell  # type: ignore[method-assign]
    try:
        yield
    finally:
        Commit.try_once, HeldRun.extend = try_once, extend  # type: ignore[method-assign]
