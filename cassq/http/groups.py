"""The calls about groups of topics: declare, lease, commit, release, lag, reset, delete.

Decides nothing: each is one call of the library. What must not break: a client that left, or whose key is
good no more, gets no lease.
"""

from datetime import timedelta
from functools import partial

from starlette.responses import Response

import cassq
from cassq.aio.twins import call_in_thread
from cassq.http import group_forms as forms
from cassq.http.following import to_start
from cassq.http.forms import Done
from cassq.http.leasing import take
from cassq.http.queues import page_of_names
from cassq.http.routes import Call, answer
from cassq.http.topics import to_form


async def list_all(call: Call) -> Response:
    """Answer with the names of the groups."""
    async with call.service.topics.get(call.name("topic")) as topic:
        return page_of_names(await topic.groups(), call)


async def declare(call: Call) -> Response:
    """Make a group, unless there is one."""
    start, name = to_start(call.body.start), call.own("group")
    async with call.service.topics.get(call.name("topic")) as topic:
        status = 200 if name in await topic.groups() else 201
        await topic.declare_group(name, start)
        return _told(name, await topic.lag(name), status)


async def show(call: Call) -> Response:
    """Answer with how far it is."""
    async with call.service.topics.get(call.name("topic")) as topic:
        return _told(call.own("group"), await topic.lag(call.own("group")))


def _told(name: str, lags: list[cassq.PartitionLag], status: int = 200) -> Response:
    partitions = [
        forms.PartitionProgress(each.partition, each.next, each.latest, each.lag, each.owner, each.epoch)
        for each in lags
    ]
    return answer(forms.Group(name, partitions), status)


async def reset(call: Call) -> Response:
    """Have it go on somewhere else."""
    to, name = to_start(call.body.to), call.own("group")
    async with call.service.topics.get(call.name("topic")) as topic:
        await topic.reset(name, to)
        return _told(name, await topic.lag(name))


async def delete(call: Call) -> Response:
    """Delete it, with its progress."""
    name = call.own("group")
    async with call.service.topics.get(call.name("topic")) as topic:
        await topic.delete_group(name)
        await topic.forget(name)
    return answer(Done(name, "deleted"))


async def lease(call: Call) -> Response:
    """Answer with the next messages of one partition, as soon as there are some; 204 where none came."""
    wanted = call.body
    own = timedelta(seconds=wanted.lease_s)

    def tell(leased: list[cassq.GroupLeased]) -> Response:
        found = leased[0]
        messages = [to_form(each) for each in found.messages]
        return answer(forms.GroupLease(found.token, found.partition, found.epoch, wanted.lease_s, messages))

    async with (
        call.service.topics.get(call.name("topic")) as topic,
        topic.lending(call.own("group")) as lessor,
    ):
        begin = partial(lessor.lease_soon, lease=own)
        told = await take(call, begin, wanted.count, wanted.wait_s, tell)
    return told or Response(status_code=204)


async def commit(call: Call) -> Response:
    """Say that what was leased is done."""
    async with (
        call.service.topics.get(call.name("topic")) as topic,
        topic.lending(call.own("group")) as lessor,
    ):
        await call_in_thread(lessor.commit, call.body.lease)
    return answer(forms.GroupEnd("committed"))


async def release(call: Call) -> Response:
    """Give back what was leased."""
    async with (
        call.service.topics.get(call.name("topic")) as topic,
        topic.lending(call.own("group")) as lessor,
    ):
        await call_in_thread(lessor.release, call.body.lease)
    return answer(forms.GroupEnd("released"))
