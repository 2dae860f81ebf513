"""The messages of a queue that were given up.

Owns listing, looking at, putting back and discarding them. Each is kept under its own id, with why and how
often it was tried.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from cassq.errors import DeadLetterNotFoundError, InvalidOptionError
from cassq.model.arguments import check_count
from cassq.model.ids import MessageId, shorten, to_message_id
from cassq.model.message import Headers, Message, to_datetime
from cassq.storage.port import DeadLetter, LetterStorage

#: One id, several, or None for all.
Which = MessageId | str | Iterable[MessageId | str] | None

#: Dead letters read at once.
PAGE = 100

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


class DeadLetters:
    """The dead letters of one queue.

    Args:
        push: stores a message again and returns its new id.
        check_open: raises when the queue is closed or was deleted.
    """

    def __init__(
        self,
        storage: LetterStorage,
        queue: str,
        push: Callable[[bytes, Headers], MessageId],
        check_open: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._queue = queue
        self._push = push
        self._check_open = check_open

    def __iter__(self) -> Iterator[DeadMessage]:
        """Yield all dead letters, in the order of their ids."""
        self._check_open()
        after: MessageId | None = None
        while page := self._storage.read_dead(self._queue, after, PAGE):
            yield from map(_to_message, page)
            after = page[-1].message_id

    def peek(self, count: int = 10) -> list[DeadMessage]:
        """Return the first `count` dead letters; nothing changes."""
        check_count(count)
        self._check_open()
        return [_to_message(letter) for letter in self._storage.read_dead(self._queue, None, count)]

    def put_back(
        self,
        message_ids: Which = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Push dead letters again, as new messages with a full count of attempts; return how many.

        A message is pushed first and removed after: a crash or an error in between leaves it in both places.
        Two that put it back at the same time may each push it.

        Args:
            message_ids: which, one id or several; None puts all back.
            progress: called with the count so far.

        Raises:
            DeadLetterNotFoundError: some of those that were named do not exist; the others are put back.
            StorageUnavailableError, OutcomeUnknownError: the next one may be in both places; those behind it
                stay, and those that `progress` told are done.
        """
        missing: list[MessageId] = []
        dealt: list[MessageId] = []
        count = 0
        for letter in self if message_ids is None else self._find(_all_of(message_ids), missing):
            self._push(letter.body, letter.headers)
            self._storage.change_dead(self._queue, removed=(letter.message_id,))
            count += 1
            if progress:
                progress(count)
            dealt.append(letter.message_id)
            if len(dealt) == PAGE:
                # Once more, as one: a stretch that is removed costs readers less than its letters one by one.
                self._storage.change_dead(self._queue, removed=dealt)
                dealt = []
        _check_found(missing, count, "put back")
        return count

    def discard(self, message_ids: Which = None) -> int:
        """Remove dead letters for ever; None removes all. Return how many.

        Raises:
            DeadLetterNotFoundError: some of those that were named do not exist; the others are removed.
        """
        missing: list[MessageId] = []
        letters = self if message_ids is None else self._find(_all_of(message_ids), missing)
        gone = [letter.message_id for letter in letters]
        for begin in range(0, len(gone), PAGE):
            self._storage.change_dead(self._queue, removed=gone[begin : begin + PAGE])
        _check_found(missing, len(gone), "discarded")
        return len(gone)

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
    )


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
