"""What clients do by the doors that stand before the library: workers, asyncio, observers, tracers.

Owns one function for each, beside what it is compared with in `cassq_work`. What is popped was pushed before
the clock starts. The rule: all of it is public interface.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cassq
import cassq.aio
from _bench.clients import cassq_work
from _bench.clients.bodies import make_bodies
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import Spent, timed

#: Of the traces, so many are sampled.
SAMPLED = 0.1


def by_prometheus() -> dict[str, Any]:
    """Keep metrics for Prometheus."""
    from cassq.metrics.prometheus import PrometheusObserver  # noqa: PLC0415 - in its process alone

    return {"observer": PrometheusObserver()}


def by_opentelemetry() -> dict[str, Any]:
    """Trace, with a sample that is exported to nowhere."""
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

    from cassq.tracing import OpenTelemetryTracer  # noqa: PLC0415

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(SAMPLED)))
    provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
    return {"tracer": OpenTelemetryTracer(provider)}


def fill(client: CassqClient, count: int, body_bytes: int) -> None:
    """Push what is to be popped."""
    client.queue.push_many(make_bodies(count, body_bytes))


def work_in_threads(client: CassqClient, count: int, body_bytes: int, concurrency: int) -> Spent:
    """Have a worker call a handler that does nothing, with commits that are written in groups."""
    return _work(client, count, body_bytes, concurrency, is_awaited=False)


def work_in_tasks(client: CassqClient, count: int, body_bytes: int, concurrency: int) -> Spent:
    """The same with a coroutine function."""
    return _work(client, count, body_bytes, concurrency, is_awaited=True)


def _work(client: CassqClient, count: int, body_bytes: int, concurrency: int, *, is_awaited: bool) -> Spent:
    fill(client, count, body_bytes)
    worker = cassq.Worker(client.store, concurrency=concurrency)
    counting = threading.Lock()
    left = count

    def handle(_: object) -> None:
        nonlocal left
        with counting:
            left -= 1
            if not left:
                worker.stop()

    async def handle_async(_: object) -> None:
        handle(_)

    worker.on(client.queue.name, commit="grouped")(handle_async if is_awaited else handle)
    return timed(count, worker.run)


def push_from_tasks(client: CassqClient, count: int, body_bytes: int, tasks: int) -> Spent:
    """Push one by one from many tasks of an event loop, each waiting for its own."""
    bodies = make_bodies(count, body_bytes)
    queue = cassq.aio.Queue(client.queue)

    async def push_some(some: list[bytes]) -> None:
        for body in some:
            await queue.push(body)

    async def push() -> None:
        await asyncio.gather(*(push_some(bodies[n::tasks]) for n in range(tasks)))

    return timed(count, lambda: asyncio.run(push()))


def pop_from_threads(client: CassqClient, count: int, body_bytes: int, threads: int) -> Spent:
    """Pop and commit one by one from many threads."""
    fill(client, count, body_bytes)
    with client.queue.popper() as popper:

        def pop_some(number: int) -> None:
            for _ in range(number, count, threads):
                with cassq_work.pop_some(popper, 1)[0]:
                    pass

        def pop() -> None:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(pop_some, range(threads)))

        return timed(count, pop)


def pop_from_tasks(client: CassqClient, count: int, body_bytes: int, tasks: int) -> Spent:
    """Pop and commit one by one from many tasks of an event loop."""
    fill(client, count, body_bytes)
    with client.queue.popper() as opened:
        popper = cassq.aio.Popper(opened)

        async def pop_some(number: int) -> None:
            for _ in range(number, count, tasks):
                if not (delivery := await popper.pop(timeout=cassq_work.PATIENCE_S)):
                    raise RuntimeError("there should be more messages")
                async with delivery:
                    pass

        async def pop() -> None:
            await asyncio.gather(*map(pop_some, range(tasks)))

        return timed(count, lambda: asyncio.run(pop()))


def iterate(client: CassqClient, count: int, body_bytes: int) -> Spent:
    """Pop in a `for` loop, with commits that are written in groups."""
    fill(client, count, body_bytes)
    return cassq_work.iterate_grouped(client, count)


def pop_many(client: CassqClient, count: int, body_bytes: int, batch: int) -> Spent:
    """Pop and commit in large calls."""
    fill(client, count, body_bytes)
    return cassq_work.pop_many(client, count, batch, 1)
