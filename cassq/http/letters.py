"""The calls about dead letters: list, redrive, discard.

Owns how a long redrive is told, and how it ends before its end. What must not break: it says that so many
were pushed again only once they were, and it does not go on for a client that left, or may do nothing more.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

import cassq
from cassq.aio.landing import landed
from cassq.errors import DeadLetterNotFoundError, InvalidOptionError, OverloadedError
from cassq.gate.gate import LOOK_S
from cassq.gate.names import full_name
from cassq.http import letter_forms as forms
from cassq.http.forms import Done
from cassq.http.messages import NDJSON
from cassq.http.problems import PartlyDoneError, cut_off, to_problem
from cassq.http.routes import Call, answer, body_to_text
from cassq.http.service import Service
from cassq.observing.letter_choice import LetterChoice
from cassq.runtime.background_thread import BackgroundThread
from cassq.topics.pages import PAGE_BYTES

#: So many redrives run in a process at once: each has a thread.
REDRIVES_MAX = 8


async def list_all(call: Call) -> Response:
    """Answer with dead letters."""
    query = call.query
    after = None if query.after is None else cassq.MessageId.parse(query.after)
    async with call.service.queues.get(call.name("queue")) as queue:
        # One more than is told says whether there are more.
        found = await queue.dead.peek(query.limit + 1, after=after, bytes_max=PAGE_BYTES)
        told = found[: query.limit]
        has_more = len(found) > query.limit or bool(
            told and await queue.dead.peek(1, after=told[-1].message_id)
        )
    last = str(told[-1].message_id) if has_more else None
    return answer(forms.Letters(list(map(_to_form, told)), last))


def _to_form(letter: cassq.DeadMessage) -> forms.Letter:
    return forms.Letter(
        str(letter.message_id),
        *body_to_text(letter.body),
        dict(letter.headers),
        letter.pushed_at,
        letter.priority,
        letter.type,
        letter.key,
        letter.attempts,
        letter.reason,
        letter.died_at,
    )


async def discard(call: Call) -> Response:
    """Remove dead letters for ever."""
    own, query = call.own("queue"), call.query
    if (query.ids is None) == (query.confirm is None):
        raise InvalidOptionError("say ids=ID[,…], or confirm=NAME for all of them")
    if query.confirm not in {None, own}:
        raise InvalidOptionError(f"confirm must be the queue's name, {own!r}, so that nothing goes by a slip")
    ids = None if query.ids is None else [cassq.MessageId.parse(each) for each in query.ids.split(",")]
    async with call.service.queues.get(call.name("queue")) as queue:
        try:
            return answer(Done(own, "discarded", await queue.dead.discard(ids)))
        except DeadLetterNotFoundError as error:
            raise PartlyDoneError(error, error.count) from error


async def redrive(call: Call) -> Response:
    """Push dead letters again, and tell of it as it goes on."""
    given: forms.Redrive = call.body
    where = _to_choice(given)
    name = call.name("queue")
    target = given.target and full_name(call.admitted.application.prefix, given.target, "queue name")
    async with call.service.queues.get(name), call.service.queues.get(target or name):
        pass  # each is there, or that is the answer
    running = call.service.redrives
    if len(running) >= REDRIVES_MAX:
        raise OverloadedError(f"{REDRIVES_MAX} redrives run in this process: try again")
    # Counted from here until its thread is through, whatever becomes of the answer.
    redriving = _Redriving(where, given)
    task = asyncio.create_task(_run(call.service, (name, target or name), redriving))
    running.add(task)
    task.add_done_callback(partial(_note_ended, running))
    return _Telling(redriving, _told(call, redriving, task))


def _note_ended(running: "set[asyncio.Task[Any]]", task: "asyncio.Task[Any]") -> None:
    running.discard(task)
    if not task.cancelled():
        task.exception()  # the answer has it, if somebody takes it


class _Telling(StreamingResponse):
    """The answer to a redrive, which ends with it, even where nobody took its first line."""

    def __init__(self, redriving: "_Redriving", lines: AsyncIterator[bytes]) -> None:
        super().__init__(lines, media_type=NDJSON)
        self._redriving = redriving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._redriving.end()


def _to_choice(given: forms.Redrive) -> Callable[[cassq.DeadMessage], bool]:
    """Return what tells whether a letter is meant.

    Raises: InvalidOptionError: not exactly one of ids, where and all is said, or an id is none.
    """
    if (given.ids is not None) + (given.where is not None) + given.all != 1:
        raise InvalidOptionError("say one of ids, where and all, so that no letter is pushed again by a slip")
    if given.ids is not None:
        meant = {cassq.MessageId.parse(each) for each in given.ids}
        return lambda letter: letter.message_id in meant
    where = given.where or forms.Where()
    died_by = None if where.older_s is None else datetime.now(UTC) - timedelta(seconds=where.older_s)
    return LetterChoice(where.reason, where.headers, died_by)


class _EndedError(Exception):
    """Raised in the thread of a redrive whose client is there no more."""


class _Redriving:
    """One redrive, in a thread of its own: it may last for hours.

    Attributes:
        count: how many letters were pushed again.
    """

    def __init__(self, where: Callable[[cassq.DeadMessage], bool], given: forms.Redrive) -> None:
        self.count = 0
        self._where = where
        self._given = given
        self._is_over = False

    def end(self) -> None:
        """Have it end after the part that is under way."""
        self._is_over = True

    def _check(self) -> None:
        if self._is_over:
            raise _EndedError

    def _note(self, count: int) -> None:
        self.count = count
        self._check()

    def _is_meant(self, letter: cassq.DeadMessage) -> bool:
        self._check()  # where few are meant, nothing is noted for long
        return self._where(letter)

    def run(self, queue: cassq.Queue, target: cassq.Queue) -> cassq.Redriven:
        """Push letters again."""
        given = self._given
        limit = given.limit or (len(given.ids) if given.ids else None)
        return queue.dead.redrive(
            None if target is queue else target,
            where=self._is_meant,
            limit=limit,
            rate=given.rate_max,
            dry_run=given.dry_run,
            progress=self._note,
        )


async def _run(service: Service, names: tuple[str, str], redriving: _Redriving) -> cassq.Redriven:
    """Redrive; the queues stay open until the thread is through with the part that is under way."""
    thread = BackgroundThread("cassq-redrive")
    try:
        async with service.queues.get(names[0]) as queue, service.queues.get(names[1]) as target:
            return await landed(thread.submit(redriving.run, queue.sync, target.sync))
    finally:
        thread.shutdown(wait=False)


async def _told(
    call: Call, redriving: _Redriving, running: "asyncio.Task[cassq.Redriven]"
) -> AsyncIterator[bytes]:
    try:
        while not running.done():
            await asyncio.wait((running,), timeout=LOOK_S)
            if not running.done():
                await call.check()
                if call.service.draining.is_set():
                    raise PartlyDoneError(cut_off(), redriving.count)
                yield _line(forms.Progress(redriving.count))
        done = running.result()
        yield _line(forms.Progress(done.count, is_done=True, reasons=dict(done.reasons)))
    except Exception as error:  # what a stream has begun with cannot be taken back
        told = to_problem(error)
        told.done = redriving.count
        yield _line(told)
    finally:
        redriving.end()


def _line(told: object) -> bytes:
    return msgspec.json.encode(told) + b"\n"
