"""What operators do with dead letters in a simulated history: look at them, put some back, discard others.

Several do so at once, each in a process of its own, and some act on a list that is old. What must not break:
what is noted of a letter is what the library dealt with, in the call that found it.
"""

from collections.abc import Callable, Iterator, Sequence

from actors import Stage, place_of
from scheduler import Process

from cassq.errors import DeadLetterNotFoundError, OutcomeUnknownError, UnavailableError
from cassq.model.ids import MessageId
from cassq.observing.dead_letters import DeadLetters, DeadMessage
from cassq.observing.redriving import Moved
from cassq.queue import Queue
from cassq.storage.port import Storage
from cassq.verification.ledger import Kind

#: Begun, and returned.
Words = tuple[Kind, Kind]
PUT_BACK: Words = (Kind.PUTTING_BACK, Kind.PUT_BACK)
DISCARD: Words = (Kind.DISCARDING, Kind.DISCARDED)


def deal_with_letters(stage: Stage, process: Process, times: int) -> None:
    """Look at the dead letters so many times, and deal with some of them."""
    store, queue = stage.open(process)
    letters = _Letters(queue, store.storage)
    dice = stage.world.dice
    seen: list[DeadMessage] = []
    for _ in range(times):
        stage.world.sleep(dice.choice((0.02, 0.1, 0.3, 0.6)))
        if not seen or dice.random() < 0.7:  # else by the list from before
            try:
                seen = list(queue.dead)
            except (UnavailableError, OutcomeUnknownError):
                continue
        if seen:
            chosen = dice.sample(seen, min(dice.choice((1, 1, 2, 9)), len(seen)))
            named = None if dice.random() < 0.2 else [letter.message_id for letter in chosen]
            _Call(stage, process, letters, named).make(DISCARD if dice.random() < 0.2 else PUT_BACK)
    store.close()


class _Letters(DeadLetters):
    """The library's own, which tells of each letter that a call found, and of each that it has dealt with."""

    def __init__(self, queue: Queue, storage: Storage) -> None:
        super().__init__(
            storage, queue.name, queue._workers.push_again, queue._workers.check_open, queue.dead._clock
        )
        self.tell: Callable[[DeadMessage], None] = lambda _letter: None
        self.tell_ended: Callable[[DeadMessage], None] = lambda _letter: None

    def _all(self, moved: Moved | None = None) -> Iterator[DeadMessage]:
        yield from self._telling(super()._all(moved))

    def _remove(self, part: Sequence[DeadMessage]) -> None:
        super()._remove(part)
        for letter in part:
            self.tell_ended(letter)

    def _find(self, named: Sequence[MessageId], missing: list[MessageId]) -> Iterator[DeadMessage]:  # type: ignore[override]
        yield from self._telling(super()._find(named, missing))

    def _telling(self, letters: Iterator[DeadMessage]) -> Iterator[DeadMessage]:
        for letter in letters:
            self.tell(letter)
            yield letter


class _Call:
    """One call of an operator: which letters were named, and which were found.

    Args:
        named: None for all.
    """

    def __init__(
        self, stage: Stage, process: Process, letters: _Letters, named: list[MessageId] | None
    ) -> None:
        self._stage = stage
        self._who = process.name
        self._letters = letters
        self._named = named
        self._begun_at = stage.world.now
        self._found: list[DeadMessage] = []
        self._ended: list[DeadMessage] = []

    def make(self, words: Words) -> None:
        """Make it, and note what becomes of each letter; of what was going on when it raises nobody knows."""
        begun, returned = words
        self._letters.tell = lambda letter: self._find(letter, begun)
        self._letters.tell_ended = lambda letter: self._end(letter, returned)
        try:
            count = self._put_back() if words is PUT_BACK else self._letters.discard(self._named)
        except DeadLetterNotFoundError as error:
            self._check(error.count, is_short=True)
        except (UnavailableError, OutcomeUnknownError):
            return
        else:
            self._check(count, is_short=False)

    def _put_back(self) -> int:
        told = [0]
        count = self._letters.put_back(self._named, told.append)
        if told[-1] != count:
            self._stage.world.fail(f"{self._who} heard of {told[-1]} letters, {count} were put back")
        return count

    def _find(self, letter: DeadMessage, begun: Kind) -> None:
        if self._named is not None and letter.message_id not in self._named:
            self._stage.world.fail(f"{self._who} deals with {letter.body.decode()}, which nobody named")
        self._found.append(letter)
        self._note(begun, letter, at=self._begun_at)

    def _end(self, letter: DeadMessage, returned: Kind) -> None:
        self._ended.append(letter)
        self._note(returned, letter)

    def _check(self, count: int, *, is_short: bool) -> None:
        found = {letter.message_id for letter in self._found}
        if (
            count != len(self._found)
            or count != len(self._ended)
            or (self._named is not None and (found != set(self._named)) is not is_short)
        ):
            named = "all" if self._named is None else len(self._named)
            self._stage.world.fail(
                f"{self._who} named {named} letters, {len(found)} were found, {count} told"
            )

    def _note(self, kind: Kind, letter: DeadMessage, at: float | None = None) -> None:
        place = place_of(letter.message_id)
        self._stage.note(self._who, kind, [letter.body.decode()], at=at, **place)
