"""The calls about leases: lease, commit, settle, extend.

Owns how leases and their outcomes are told. What must not break: a token is told to the client that leases
alone, and no error or log has more of it than its first characters.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

import cassq
from cassq.aio.landing import landed
from cassq.aio.twins import call_in_thread
from cassq.errors import (
    CassqError,
    DeliveryExpiredError,
    InvalidOptionError,
    OutcomeUnknownError,
    QueueNotFoundError,
)
from cassq.http import lease_forms as forms
from cassq.http.lending import AnyFuture, LendingQueue, OtherQueueError, Waiting
from cassq.http.lending import parse as parse  # noqa: PLC0414 - others have it from here
from cassq.http.messages import HEADER, NDJSON
from cassq.http.problems import PartlyDoneError
from cassq.http.routes import Call, answer, body_to_text
from cassq.model.ids import MessageId
from cassq.popping.lessor import Leased, LeasedMessage

#: One message as it is; its lease and its headers are headers of the answer.
BYTES = "application/octet-stream"

#: So many commits of one request begin in one turn of the loop.
SOME = 50

#: Of what names no message so much is told: it may be a token.
_SHOWN = 12

#: Headers of a message that can be headers of an answer, and come back as they are when they are pushed.
_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"(?:[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?")

_T = TypeVar("_T")

_Return = forms.Return | forms.Rejection


async def lease(call: Call) -> Response:
    """Answer with leases, as soon as there are messages; 204 where none came in time."""
    wanted, accepted = call.body, _accepted(call)
    if accepted == BYTES and wanted.count != 1:
        raise InvalidOptionError(
            f"count={wanted.count} with Accept: {BYTES}, which has one message: leave it out"
        )

    def tell(leased: list[Leased]) -> Response:
        return _tell(leased, accepted)

    async with call.service.queues.get(call.name("queue")) as queue, queue.lending() as lessor:
        told = await take(call, lessor.lease_soon, wanted.count, wanted.wait_s, tell)
    return told or Response(status_code=204)


def _tell(leased: list[Leased], accepted: str | None) -> Response:
    if accepted == BYTES:
        return _one(leased[0])
    if accepted == NDJSON:
        lines = b"".join(msgspec.json.encode(line) + b"\n" for each in leased for line in _lines(each))
        return Response(lines, media_type=NDJSON)
    return answer(forms.Leases(list(map(_whole, leased))))


async def take(
    call: Call,
    begin: Callable[[int], AnyFuture],
    count: int,
    wait_s: float,
    tell: Callable[[list[Any]], Response],
) -> Response | None:
    """Return the answer that tells of leases, as soon as there are messages; None where none came in time.

    The body of the request has been read by then.

    Args:
        begin: stands in line, for so many messages.
        tell: makes the answer; where that fails the messages go back.
    """
    told: list[Response] = []

    async def check(leased: list[Any]) -> None:
        await call.check()
        told.append(call.hold(tell(leased)))

    metrics = call.service.metrics
    with metrics.waiting.track_inprogress() if metrics else nullcontext():
        await Waiting(call.request, count, wait_s, call.service.waits, check).lease(begin)
    return told[0] if told else None


def _accepted(call: Call) -> str | None:
    given = {
        each.partition(";")[0].strip().lower() for each in call.request.headers.get("accept", "").split(",")
    }
    return next((each for each in (NDJSON, BYTES) if each in given), None)


def _whole(leased: Leased) -> forms.Lease:
    return forms.Lease(
        leased.lease.to_text(), leased.lease.attempt, leased.left_s, list(map(_told, leased.messages))
    )


def _lines(leased: Leased) -> Iterator[forms.Line]:
    whole = _whole(leased)
    return (forms.Line(whole.lease, whole.attempt, whole.left_s, each) for each in whole.messages)


#: Of most leases all messages have one pipe's.
_pipe_text = lru_cache(64)(str)


def _told(message: LeasedMessage) -> forms.LeasedMessage:
    pipe, seq = message.message_id
    return forms.LeasedMessage(
        f"{_pipe_text(pipe)}:{seq}",  # as `str` of the id
        *body_to_text(message.body),
        dict(message.headers),
        message.pushed_at,
        message.priority,
        message.type,
    )


def _one(leased: Leased) -> Response:
    """Return one message as it is: its headers as they are pushed; in JSON what no header can carry."""
    message = leased.messages[0]
    response = Response(message.body, media_type=BYTES)
    for name, value in (
        ("Cassq-Lease", leased.lease.to_text()),
        ("Cassq-Id", str(message.message_id)),
        ("Cassq-Attempt", str(message.attempt)),
        ("Cassq-Left-S", f"{leased.left_s:.3f}"),
        ("Cassq-Pushed-At", message.pushed_at.isoformat()),
        ("Cassq-Priority", str(message.priority)),
        ("Cassq-Type", message.type),
    ):
        if value is not None:
            response.headers[name] = value
    others: dict[str, str] = {}
    for name, value in message.headers.items():
        if _NAME.fullmatch(name) and _VALUE.fullmatch(value):
            response.raw_headers.append((HEADER + name.encode(), value.encode()))
        else:
            others[name] = value
    if others:
        response.headers["Cassq-Headers"] = json.dumps(others)  # in ASCII, on one line
    return response


async def commit(call: Call) -> Response:
    """End all messages of leases, and tell what each came to."""
    told = await _at_queue(call, lambda queue: commit_all(call, queue, call.body.leases))
    check_any([each.value for each in told])
    return answer(forms.Outcomes(told))


async def commit_all(call: Call, queue: LendingQueue, texts: Sequence[str]) -> list[cassq.Settled]:
    """End all messages of leases; return what each came to."""
    leases = [parse(queue, text) for text in texts]
    _note_settled(call, queue, leases)
    begun: dict[cassq.Lease, asyncio.Future[cassq.Settled]] = {}
    # Those of all requests of a moment are written together.
    for number, each in enumerate(dict.fromkeys(leases), 1):
        begun[each] = landed(queue.sync.leases.commit_soon(each))
        if number % SOME == 0:
            await asyncio.sleep(0)  # others have their turn
    return await asyncio.gather(*(begun[each] for each in leases))


async def extend(call: Call) -> Response:
    """Begin leases anew, and tell how long each runs now."""
    told = await _at_queue(call, lambda queue: extend_all(queue, call.body.leases))
    check_any([each.outcome.value for each in told])
    return answer(forms.Extensions(told))


async def extend_all(queue: LendingQueue, texts: Sequence[str]) -> list[forms.Extended]:
    """Begin leases anew; return what became of each."""
    own = queue.sync.leases
    leases = [parse(queue, text) for text in texts]
    told = await call_in_thread(own.extend, leases)
    return [forms.Extended(how, own.left_s(each)) for each, how in zip(leases, told, strict=True)]


async def settle(call: Call) -> Response:
    """End a lease: some messages go back, some are given up, all others are committed."""
    return answer(forms.Outcome(await _at_queue(call, lambda queue: _settle(call, queue))))


async def _settle(call: Call, queue: LendingQueue) -> cassq.Settled:
    given = call.body
    lease = parse(queue, given.lease)
    _note_settled(call, queue, (lease,))
    returns = _by_number(lease, [*given.rollback, *given.reject])
    told: cassq.Settled = await call_in_thread(
        queue.sync.leases.settle,
        lease,
        {seq: _to_rollback(how) for seq, how in returns.items() if isinstance(how, forms.Return)},
        {seq: how.reason for seq, how in returns.items() if isinstance(how, forms.Rejection)},
    )
    return told


async def _at_queue(call: Call, act: Callable[[LendingQueue], Awaitable[_T]]) -> _T:
    """Return what this comes to at the queue; at the present one, where the one that is open was deleted."""
    queues, name = call.service.queues, call.name("queue")
    with suppress(QueueNotFoundError):
        async with queues.get(name) as queue:
            try:
                return await act(queue)
            except OtherQueueError:
                # Another process may have made it anew: this one may have the earlier one open.
                present = await call.service.store.find_queue(name)
                if present.sync.leases.incarnation == queue.sync.leases.incarnation:
                    raise
                raise QueueNotFoundError(f"queue {name!r} was made anew") from None
    async with queues.get(name) as queue:
        return await act(queue)


def _note_settled(call: Call, queue: LendingQueue, leases: Iterable[cassq.Lease]) -> None:
    if metrics := call.service.metrics:
        for each in leases:
            metrics.note_settled(is_home=queue.sync.leases.left_s(each) > 0)


def check_any(outcomes: list[str]) -> None:
    """Raise where no lease came to what its client wanted.

    Raises: PartlyDoneError: by a client that looks at the status alone, one of them is not taken for done.
    """
    if set(outcomes) - {"expired", "unknown"}:
        return
    cause: CassqError = DeliveryExpiredError(
        "no lease stands any more: what has not ended of its messages is delivered again"
    )
    if "unknown" in outcomes:
        cause = OutcomeUnknownError("it may have happened or not: call again")
    raise PartlyDoneError(cause, outcomes=outcomes)


def _by_number(lease: cassq.Lease, returns: Sequence[_Return]) -> dict[int, _Return]:
    """Return how messages go back, by their numbers; one without an id is for all that have none.

    Raises: InvalidOptionError: an id is none, or of another lease; or a message is named twice.
    """
    found: dict[int, _Return] = {}
    rest: _Return | None = None
    for each in returns:
        if each.id is None:
            if rest is not None:
                raise InvalidOptionError("two entries have no id: one may be for all that are not named")
            rest = each
            continue
        seq = _to_number(lease, each.id)
        if seq in found:
            raise InvalidOptionError(f"message {each.id} is named twice: name it once")
        found[seq] = each
    if rest is not None:
        found = dict.fromkeys(range(lease.first, lease.last + 1), rest) | found
    return found


def _to_number(lease: cassq.Lease, text: str) -> int:
    try:
        pipe, seq = MessageId.parse(text)
    except InvalidOptionError:
        raise InvalidOptionError(
            f"{text[:_SHOWN]!r}… is no id of a message: send it as the lease had it"
        ) from None
    if pipe != lease.pipe or not lease.first <= seq <= lease.last:
        raise InvalidOptionError(f"message {text} is not of {lease}")
    return seq


def _to_rollback(how: forms.Return) -> cassq.Rollback:
    return cassq.Rollback(None if how.delay_s is None else timedelta(seconds=how.delay_s), how.reason)
