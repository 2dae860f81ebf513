"""Queues of type `worker`, which Queuey planned: reserve, verify, retry, fail, extend.

Owns how these are told. Each is a call about leases under another name: a reservation is a lease, and its
token names it (see `leasing`). What must not break: as there.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

import cassq
from cassq.aio.twins import call_in_thread
from cassq.errors import AccessDeniedError, CassqError, DeliveryExpiredError, OutcomeUnknownError
from cassq.gate.applications import Right
from cassq.http.forms import LIMIT_MAX
from cassq.http.lease_forms import WAIT_MAX_S
from cassq.http.leasing import check_any, commit_all, extend_all, parse, take
from cassq.http.lending import LendingQueue
from cassq.http.queuey_access import own_queue
from cassq.http.queuey_forms import Fields, done, read_fields
from cassq.http.routes import Call, body_to_text
from cassq.model.settings import DELAY_MAX
from cassq.popping.lessor import Leased
from cassq.topics.pages import PAGE_BYTES

DELAY_MAX_S = DELAY_MAX.total_seconds()


async def peek(call: Call, limit: int) -> Response:
    """Answer with what waits.

    Raises: AccessDeniedError: the key may not look.
    """
    if Right.LOOK not in call.admitted.application.rights:
        raise AccessDeniedError("this application has no right 'look', which shows what waits for workers")
    async with call.service.queues.get(own_queue(call)) as queue:
        found = await queue.peek(limit, bytes_max=PAGE_BYTES)
    return done(messages=[_to_form(each.message_id, each.body, each.pushed_at) for each in found])


def _to_form(message_id: cassq.MessageId, body: bytes, pushed_at: datetime) -> dict[str, Any]:
    text, encoding = body_to_text(body)
    told = {"message_id": str(message_id), "timestamp": f"{pushed_at.timestamp():.3f}", "body": text}
    return told if encoding == "utf-8" else {**told, "encoding": encoding}


async def reserve(call: Call) -> Response:
    """Answer with reservations, as soon as there are messages; with none where none came in time."""
    full, fields = own_queue(call), await read_fields(call)
    limit, wait_s = fields.number("limit", 1, LIMIT_MAX) or 1, fields.seconds("wait", WAIT_MAX_S) or 0.0
    fields.end()
    async with call.service.queues.get(full) as queue, queue.lending() as lessor:
        told = await take(call, lessor.lease_soon, limit, wait_s, _reserved)
    return told or _reserved([])


def _reserved(leased: list[Leased]) -> Response:
    return done(
        reservations=[
            {
                "reservation": each.lease.to_text(),
                "attempt": each.lease.attempt,
                "left": each.left_s,
                "messages": [_to_form(one.message_id, one.body, one.pushed_at) for one in each.messages],
            }
            for each in leased
        ]
    )


async def verify(call: Call) -> Response:
    """End the messages of reservations: their work is done."""
    full, fields = own_queue(call), await read_fields(call)
    texts = _take_reservations(fields)
    fields.end()
    async with call.service.queues.get(full) as queue:
        return _tell(await commit_all(call, queue, texts))


async def extend(call: Call) -> Response:
    """Have reservations run for as long again."""
    full, fields = own_queue(call), await read_fields(call)
    texts = _take_reservations(fields)
    fields.end()
    async with call.service.queues.get(full) as queue:
        told = await extend_all(queue, texts)
    check_any([each.outcome.value for each in told])
    return done(outcomes=[{"outcome": each.outcome.value, "left": each.left_s} for each in told])


async def retry(call: Call) -> Response:
    """Have the messages of reservations be tried again, after a while."""
    full, fields = own_queue(call), await read_fields(call)
    texts, reason = _take_reservations(fields), fields.text("reason") or ""
    delay_s = fields.seconds("delay", DELAY_MAX_S)
    fields.end()
    how = cassq.Rollback(None if delay_s is None else timedelta(seconds=delay_s), reason)

    def settle(queue: LendingQueue, lease: cassq.Lease) -> Awaitable[cassq.Settled]:
        return call_in_thread(queue.sync.leases.settle, lease, dict.fromkeys(_numbers(lease), how), {})

    return await _settle_all(call, full, texts, settle)


async def fail(call: Call) -> Response:
    """Give the messages of reservations up: they become dead letters."""
    full, fields = own_queue(call), await read_fields(call)
    texts, reason = _take_reservations(fields), fields.text("reason") or ""
    fields.end()

    def settle(queue: LendingQueue, lease: cassq.Lease) -> Awaitable[cassq.Settled]:
        return call_in_thread(queue.sync.leases.settle, lease, {}, dict.fromkeys(_numbers(lease), reason))

    return await _settle_all(call, full, texts, settle)


def _numbers(lease: cassq.Lease) -> range:
    return range(lease.first, lease.last + 1)


async def _settle_all(
    call: Call,
    full: str,
    texts: Sequence[str],
    settle: Callable[[LendingQueue, cassq.Lease], Awaitable[cassq.Settled]],
) -> Response:
    told: dict[cassq.Lease, cassq.Settled] = {}
    async with call.service.queues.get(full) as queue:
        leases = [parse(queue, text) for text in texts]
        for lease in dict.fromkeys(leases):
            try:
                told[lease] = await settle(queue, lease)
            except DeliveryExpiredError:
                told[lease] = cassq.Settled.EXPIRED
            except OutcomeUnknownError:
                told[lease] = cassq.Settled.UNKNOWN
            except CassqError:
                if set(told.values()) <= {cassq.Settled.EXPIRED}:
                    raise
                break  # some are done, and to ask again for all would say of these that they are over
    return _tell([told.get(each, cassq.Settled.UNKNOWN) for each in leases])


def _tell(outcomes: Sequence[cassq.Settled]) -> Response:
    told = [each.value for each in outcomes]
    check_any(told)
    return done(outcomes=told)


def _take_reservations(fields: Fields) -> list[str]:
    """Take the tokens: a list, or in a form with commas between them."""
    given = fields.take("reservations")
    texts = given.split(",") if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) and each for each in texts):
        fields.refuse("reservations", "the tokens of reservations are wanted")
        return []
    if len(texts) > LIMIT_MAX:
        fields.refuse("reservations", f"{LIMIT_MAX} at most")
    return texts
