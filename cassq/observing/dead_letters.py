"""The messages of a queue that were given up.

Owns listing, looking at, putting back and discarding them. Each is kept under its own id, with why and how
often it was tried. The rule that must not break: a letter is removed only after its message was pushed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Protocol

from cassq.errors import DeadLetterNotFoundError, InvalidOptionError
from cassq.model.arguments import check_count
from cassq.model.ids import MessageId, shorten, to_message_id
from cassq.model.label import Label
from cassq.model.message import Message, size_of, to_datetime
from cassq.observing.redriving import PAGE, TOLD_S, Moved, PushAgain, Redriven, pace, parts
from cassq.runtime.clock import Clock, rest
from cassq.storage.forms import DeadLetter
from cassq.storage.port import LetterStorage

#: One id, several, or None for all.
Which = MessageId | str | Iterable[MessageId | str] | None

#: `count` counts no further.
LETTERS_MAX = 10_000

#: Where their size counts, so many are read at once: each may be large.
SIZED_PAGE = 10

#: An error names at most so many ids.
SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class DeadMessage(Message):
    """A message that was given up.

    Attributes:
        attempts: how often it was handed out.
        reason: why it was given up.
        died_at: when, by the database's clock.
    """

    attempts: int
    reason: str
    died_at: datetime


class Target(Protocol):
    """A queue that letters are pushed into."""

    @property
    def dead(self) -> "DeadLetters":
        """Its own dead letters."""
        ...


class DeadLetters:
    """The dead letters of one queue.

    Args:
        push: stores messages again.
        check_open: raises when the queue is closed or was deleted.
    """

    def __init__(
        self,
        storage: LetterStorage,
        queue: str,
        push: PushAgain,
        check_open: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._storage = storage
        self._queue = queue
        self._push = push
        self._check_open = check_open
        self._clock = clock

    def __iter__(self) -> Iterator[DeadMessage]:
        """Yield all dead letters, in the order of their ids."""
        self._check_open()
        after: MessageId | None = None
        while page := self._storage.read_dead(self._queue, after, PAGE):
            yield from map(_to_message, page)
            after = page[-1].message_id

    def peek(
        self,
        count: int = 10,
        *,
        after: MessageId | str | None = None,
        bytes_max: int | None = None,
    ) -> list[DeadMessage]:
        """Return the first `count` dead letters, or the first after one of them; nothing changes.

        Args:
            bytes_max: end before bodies and headers have more together; one letter is always there.
        """
        check_count(count)
        self._check_open()
        found: list[DeadMessage] = []
        size = 0
        at_once = count if bytes_max is None else SIZED_PAGE
        last = None if after is None else to_message_id(after)
        while asked := min(at_once, count - len(found)):
            page = self._storage.read_dead(self._queue, last, asked)
            for letter in map(_to_message, page):
                size += size_of(letter.body, letter.headers)
                if found and bytes_max is not None and size > bytes_max:
                    return found
                found.append(letter)
            if len(page) < asked:
                break
            last = page[-1].message_id
        return found

    def count(self) -> int:
        """Return how many there are, counted up to 10 000."""
        self._check_open()
        return self._storage.count_dead(self._queue, LETTERS_MAX)

    def put_back(
        self,
        message_ids: Which = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Push dead letters again, as new messages with a full count of attempts; return how many.

        They are pushed a hundred at a time, and removed after that: a crash or an error in between leaves
        them in both places. Two that put one back at the same time may each push it. What this call pushed,
        and died again meanwhile, stays.

        Args:
            message_ids: which, one id or several; None puts all back.
            progress: called with the count so far, also while it rests; what it raises ends the call.

        Raises:
            DeadLetterNotFoundError: some of those that were named do not exist; the others are put back.
            StorageUnavailableError, OutcomeUnknownError: of the next hundred some may be in both places;
                those behind them stay, and those that `progress` told are done.
        """
        missing: list[MessageId] = []
        moved = Moved(self._push, progress)
        letters = self._all(moved) if message_ids is None else self._find(_all_of(message_ids), missing)
        for part in parts(letters, PAGE):
            self._move(part, moved)
        _check_found(missing, moved.count, "put back")
        return moved.count

    def redrive(  # noqa: PLR0913 - each is one of an operator's questions
        self,
        to: Target | None = None,
        *,
        where: Callable[[DeadMessage], bool] | None = None,
        limit: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Redriven:
        """Push those dead letters again that `where` chooses, into this queue or another; as `put_back`.

        Args:
            to: the queue, of this store or another; None for this one.
            where: tells of each letter whether it is meant; None for all.
            limit: at most so many, the oldest first.
            rate: at most so many a second, so that workers are not flooded; None for as many as can be.
            dry_run: push nothing, only tell what would be.
            progress: called with the count so far, also while it rests; what it raises ends the call.

        Raises: InvalidOptionError, and as `put_back`.
        """
        size, pause_s = pace(rate)
        if limit is not None:
            check_count(limit)
        into = self if to is None else _letters_of(to)
        into._check_open()  # noqa: SLF001 - of this class
        moved = Moved(into._push, progress)  # noqa: SLF001
        reasons: Counter[str] = Counter()
        chosen = (letter for letter in self._all(moved) if where is None or where(letter))
        next_at = self._clock.now()
        for part in parts(islice(chosen, limit), size):
            if dry_run:
                moved.note(len(part))
            else:
                self._rest_until(next_at, moved)
                next_at = self._clock.now() + len(part) * pause_s
                self._move(part, moved)
            reasons.update(letter.reason for letter in part)
        return Redriven(moved.count, dict(reasons.most_common()))

    def discard(self, message_ids: Which = None) -> int:
        """Remove dead letters for ever; None removes all. Return how many.

        Raises:
            DeadLetterNotFoundError: some of those that were named do not exist; the others are removed.
        """
        missing: list[MessageId] = []
        count = 0
        letters = self._all() if message_ids is None else self._find(_all_of(message_ids), missing)
        for part in parts(letters, PAGE):
            self._remove(part)
            count += len(part)
        _check_found(missing, count, "discarded")
        return count

    def _all(self, moved: Moved | None = None) -> Iterator[DeadMessage]:
        """Yield all letters but those of messages that this call has pushed."""
        return (letter for letter in self if not (moved and moved.has_pushed(letter.message_id)))

    def _move(self, part: Sequence[DeadMessage], moved: Moved) -> None:
        """Push letters again, and remove those that are stored; raise what the first other one met."""
        futures = moved.push([(letter.body, letter.headers, _label_of(letter)) for letter in part])
        stored = [letter for letter, future in zip(part, futures, strict=True) if not future.exception()]
        for future in futures:
            if not future.exception():
                moved.note_pushed(future.result())
        if stored:
            self._remove(stored)
            moved.note(len(stored))
        for future in futures:
            future.result()

    def _remove(self, part: Sequence[DeadMessage]) -> None:
        """Remove letters as one: a stretch costs readers less than its letters one by one."""
        self._storage.change_dead(self._queue, removed=[letter.message_id for letter in part])

    def _rest_until(self, at: float, moved: Moved) -> None:
        while (left_s := at - self._clock.now()) > 0:
            rest(self._clock, min(left_s, TOLD_S))
            moved.note(0)  # whoever hears of it may have it end

    def _find(self, named: Iterable[MessageId], missing: list[MessageId]) -> Iterator[DeadMessage]:
        """Yield those of the named letters that exist, and note the others."""
        self._check_open()
        for message_id in named:
            before = MessageId(message_id.pipe, message_id.seq - 1)
            found = self._storage.read_dead(self._queue, before, 1, until=message_id)
            if found:
                yield _to_message(found[0])
            else:
                missing.append(message_id)


def _letters_of(to: object) -> DeadLetters:
    letters = getattr(to, "dead", None)
    if not isinstance(letters, DeadLetters):
        raise InvalidOptionError(f"to={shorten(to)} is not a queue: give what store.find_queue(name) returns")
    return letters


def _check_found(missing: list[MessageId], count: int, what: str) -> None:
    if missing:
        shown = ", ".join(map(str, missing[:SHOWN_MAX])) + (", …" if len(missing) > SHOWN_MAX else "")
        raise DeadLetterNotFoundError(
            f"{len(missing)} of {len(missing) + count} are no dead letters of this queue: {shown}; "
            f"{count} were {what} (`cassq dead list` shows which there are)",
            count,
        )


def _to_message(letter: DeadLetter) -> DeadMessage:
    return DeadMessage(
        letter.message_id,
        letter.body,
        letter.headers,
        to_datetime(letter.pushed_at_ms),
        letter.attempts,
        letter.reason,
        to_datetime(letter.died_at_ms),
        priority=letter.priority,
        type=letter.type or None,
        key=letter.key or None,
    )


def _label_of(letter: DeadMessage) -> Label:
    return Label(0, letter.priority, letter.type or "", key=letter.key or "")


def _all_of(message_ids: MessageId | str | Iterable[MessageId | str]) -> list[MessageId]:
    if isinstance(message_ids, MessageId | str):
        return [to_message_id(message_ids)]
    try:
        named = iter(message_ids)
    except TypeError as error:
        raise InvalidOptionError(
            f"{shorten(message_ids)} is not a message id, nor several: give one, a list, or None for all"
        ) from error
    return list(dict.fromkeys(to_message_id(each) for each in named))  # one that is named twice exists once
