"""What became of messages that somebody cancelled.

Owns the account of cancellations; `cassq.verification.checker.judge` tells what it asks of a history. Pure.
What must not break: one that was told to have come to nothing excuses nothing, and what was cancelled is
delivered to nobody any more.

A cancellation that never returned tells nothing: it may have ended its message, also later.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from cassq.verification.deliveries import NotedDelivery
from cassq.verification.ledger import Kind, Line
from cassq.verification.put_back_rules import Place

#: What a line's words say of a cancellation that means a message in somebody's hands, too.
RUNNING = "running"


@dataclass(slots=True)
class _Call:
    who: str
    begun_at: float
    is_running_meant: bool
    ended_at: float | None = None
    is_cancelled: bool = False

    @property
    def may_have_ended(self) -> bool:
        """Whether it ended the message, or nobody knows."""
        return self.is_cancelled or self.ended_at is None


class CancelRules:
    """Cancellations by message and place."""

    def __init__(self) -> None:
        self._calls: defaultdict[str, dict[Place, list[_Call]]] = defaultdict(dict)

    def note_begun(self, line: Line) -> None:
        """Note that a message is about to be cancelled."""
        calls = self._calls[line.message].setdefault((line.pipe, line.seq), [])
        # What an earlier one may have ended in somebody's hands a later one finds ended.
        is_running_meant = line.words == RUNNING or any(
            call.is_running_meant and call.may_have_ended for call in calls
        )
        calls.append(_Call(line.who, line.at, is_running_meant))

    def note_returned(self, line: Line) -> None:
        """Note that a cancellation returned, and what."""
        calls = self._calls[line.message].get((line.pipe, line.seq), [])
        # Of those that `who` has begun the last one: what is older never returned.
        call = next(call for call in reversed(calls) if call.who == line.who)
        call.ended_at, call.is_cancelled = line.at, line.kind is Kind.CANCELLED

    def places(self, message: str) -> set[Place]:
        """Return the ids under which the message was cancelled, or may have been."""
        found = self._calls.get(message, {})
        return {place for place, calls in found.items() if any(call.may_have_ended for call in calls)}

    def names(self) -> set[str]:
        """Return the messages that were cancelled, or may have been."""
        return {message for message in self._calls if self.places(message)}

    def objections(
        self,
        deliveries: Mapping[str, Sequence[NotedDelivery]],
        ended: Mapping[str, AbstractSet[Place]],
    ) -> Iterator[str]:
        """Yield in words what contradicts that a message was cancelled.

        Args:
            ended: the ids under which messages were committed, or became letters.
        """
        for message, found in sorted(self._calls.items()):
            for place, calls in found.items():
                each = [one for one in deliveries.get(message, ()) if one.place == place]
                for call in calls:
                    if call.is_cancelled and call.ended_at is not None:
                        why = _objection(call, call.ended_at, each)
                        if not why and not call.is_running_meant and place in ended.get(message, ()):
                            why = "it ended otherwise, too"
                        if why:
                            yield f"{message}: cancelled by {call.who} at {call.ended_at:.3f}: {why}"


def _objection(call: _Call, at: float, each: Sequence[NotedDelivery]) -> str:
    out = [one for one in each if one.free_at > at]
    if call.is_running_meant:
        later = [one for one in out if one.line.at > at]
        # One had it then: who noted that before, or notes it later.
        noted = any(one.line.at <= call.begun_at for one in out)
        return f"{later[-1]} came, too" if len(later) > int(not noted) else ""
    return f"{out[-1]} had it" if out else ""
