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

from cassq.aio.popper import Delivery, Popper
from cassq.aio.store import DeadLetters, Queue, Schedules, Store, connect

__all__ = ["DeadLetters", "Delivery", "Popper", "Queue", "Schedules", "Store", "connect"]
