"""The same queue for asyncio: what waits is awaited.

import cassq.aio

async with cassq.aio.connect("sqlite:///orders.db") as store:
    orders = await store.queue("orders")
    await orders.push(b"one order")

    async with orders.popper() as popper:
        async for delivery in popper:
            async with delivery:
                await handle(delivery.body)
"""

from cassq.aio.lessors import GroupLessor, Leases, Lessor
from cassq.aio.popper import Delivery, Popper
from cassq.aio.store import DeadLetters, Queue, Schedules, Store, connect
from cassq.aio.topic_readers import Consumer, GroupMessage, Relay, TopicReader
from cassq.aio.topics import Topic

__all__ = [
    "Consumer",
    "DeadLetters",
    "Delivery",
    "GroupLessor",
    "GroupMessage",
    "Leases",
    "Lessor",
    "Popper",
    "Queue",
    "Relay",
    "Schedules",
    "Store",
    "Topic",
    "TopicReader",
    "connect",
]
