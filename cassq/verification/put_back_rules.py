"""What became of dead letters, and so how many messages of one name there must be, and may be.

Owns the account of letters; `cassq.verification.checker.judge` tells what it asks of a history. Pure. What
must not break: a letter that was put back or discarded is gone for good, and each call that put it back made
one message.

    operator A                  the letter                  operator B
    | finds it --------------->   |                         |
    | pushes its message          |   <------------ finds it |
    | removes it -------------->  x                         | pushes its message: there are two now
    | has put it back                <---------- removes it |
    |                                             finds none | finds none, from now on

A call that was begun and never returned may have pushed, and may have removed. It removes nothing before its
message is stored: where the letter is gone, and nobody can have discarded it, the message must be there.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from cassq.verification.ledger import Kind, Line

_FOREVER = float("inf")

#: Pipe and number of a message, which are its id.
Place = tuple[str, int]


@dataclass(slots=True)
class _Call:
    """One call that puts a letter back or discards it."""

    who: str
    is_discard: bool
    begun_at: float
    ended_at: float = _FOREVER


@dataclass(slots=True)
class _Letter:
    """A dead letter, as far as anybody noted something about it."""

    found_at: float = -_FOREVER
    calls: list[_Call] = field(default_factory=list)

    @property
    def removed_at(self) -> float:
        """Since when it is gone for good."""
        return min((call.ended_at for call in self.calls), default=_FOREVER)

    @property
    def is_there(self) -> bool:
        """Whether somebody found it after everything that was done with it."""
        return all(call.begun_at < self.found_at for call in self.calls)

    @property
    def put_backs(self) -> list[_Call]:
        """The calls that push its message, or may."""
        return [call for call in self.calls if not call.is_discard]

    @property
    def least(self) -> int:
        """So many messages were certainly made of it."""
        returned = sum(call.ended_at < _FOREVER for call in self.put_backs)
        must_be_pushed = self.calls and len(self.put_backs) == len(self.calls) and not self.is_there
        return max(returned, 1 if must_be_pushed else 0)

    @property
    def most(self) -> int:
        """So many may have been made of it: once it is gone nobody finds it."""
        return sum(call.begun_at <= self.removed_at for call in self.put_backs)

    def objections(self) -> Iterator[str]:
        """Yield in words what contradicts that it is gone for good."""
        if self.found_at > self.removed_at:
            yield f"a dead letter at {self.found_at:.3f}, though it was gone at {self.removed_at:.3f}"
        for call in self.calls:
            if call.ended_at < _FOREVER and call.begun_at > self.removed_at:
                what = "discarded" if call.is_discard else "put back"
                begun = f"{what} by {call.who} at {call.begun_at:.3f}"
                yield f"{begun}, though it was gone at {self.removed_at:.3f}"


class PutBacks:
    """Letters by message and place."""

    def __init__(self) -> None:
        self._letters: defaultdict[str, dict[Place, _Letter]] = defaultdict(dict)
        self._open: defaultdict[tuple[str, bool, str, Place], list[_Call]] = defaultdict(list)

    def note_found(self, line: Line) -> None:
        """Note that a letter was there."""
        letter = self._of(line)
        letter.found_at = max(letter.found_at, line.at)

    def note_begun(self, line: Line) -> None:
        """Note that a letter is about to be put back or discarded."""
        self._begin(line, is_discard=line.kind is Kind.DISCARDING)

    def note_returned(self, line: Line) -> None:
        """Note that a letter was put back or discarded."""
        is_discard = line.kind is Kind.DISCARDED
        found = self._open[line.who, is_discard, line.message, (line.pipe, line.seq)]
        call = found.pop() if found else self._begin(line, is_discard=is_discard)
        call.ended_at = line.at

    def _begin(self, line: Line, *, is_discard: bool) -> _Call:
        call = _Call(line.who, is_discard, line.at)
        self._of(line).calls.append(call)
        if line.kind in (Kind.PUTTING_BACK, Kind.DISCARDING):
            self._open[line.who, is_discard, line.message, (line.pipe, line.seq)].append(call)
        return call

    def _of(self, line: Line) -> _Letter:
        return self._letters[line.message].setdefault((line.pipe, line.seq), _Letter())

    @property
    def put_back(self) -> set[str]:
        """The messages that a call put back, and returned."""
        return {
            message
            for message, letters in self._letters.items()
            if any(call.ended_at < _FOREVER for letter in letters.values() for call in letter.put_backs)
        }

    def is_touched(self, message: str) -> bool:
        """Tell whether a call may have made another message of this name."""
        return any(letter.put_backs for letter in self._letters.get(message, {}).values())

    def places(self, message: str) -> set[Place]:
        """Return the ids under which the message became a letter."""
        return set(self._letters.get(message, ()))

    def least(self, message: str) -> int:
        """Return how many messages of this name were certainly pushed by putting letters back."""
        return sum(letter.least for letter in self._letters.get(message, {}).values())

    def most(self, message: str) -> int:
        """Return how many messages of this name may have been pushed by putting letters back."""
        return sum(letter.most for letter in self._letters.get(message, {}).values())

    def objections(self) -> Iterator[str]:
        """Yield in words what contradicts that a letter is gone for good."""
        for message, letters in sorted(self._letters.items()):
            for letter in letters.values():
                yield from (f"{message}: {words}" for words in letter.objections())
