"""What cassq's clients are told to do beyond what every contestant does.

Owns one function for each way of using the library that `throughput` tells. Bodies are made before the clock
starts; what is popped in one call was pushed by the calls before. The rule: all of it is public interface.
"""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import cassq
from _bench.clients.bodies import make_bodies
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import Spent, timed

PATIENCE_S = 10.0


def push_many(client: CassqClient, count: int, body_bytes: int, lanes: int) -> Spent:
    """Push all in one call, which cuts them into writes by itself."""
    bodies = make_bodies(count, body_bytes)
    queue = client.queue_of(lanes)
    return timed(count, lambda: queue.push_many(bodies))


def push_soon(client: CassqClient, count: int, body_bytes: int) -> Spent:
    """Push one by one from one thread, and wait for the last."""
    bodies = make_bodies(count, body_bytes)
    return timed(count, lambda: client.push_ahead(bodies))


def push_from_threads(client: CassqClient, count: int, body_bytes: int, threads: int) -> Spent:
    """Push one by one from many threads, each waiting for its own."""
    bodies = make_bodies(count, body_bytes)

    def push() -> None:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(client.push_each, [bodies[n::threads] for n in range(threads)]):
                pass

    return timed(count, push)


def push_one_by_one(client: CassqClient, count: int, body_bytes: int) -> Spent:
    """Push one by one from one thread, each durable before the next."""
    bodies = make_bodies(count, body_bytes)
    client.queue.push(bodies[0])  # opens the pipe
    return timed(count, lambda: client.push_each(bodies))


def pop_many(client: CassqClient, count: int, batch: int, lanes: int) -> Spent:
    """Pop and commit in large calls."""
    queue = client.queue_of(lanes)

    def pop() -> None:
        popped = 0
        with queue.popper() as popper:
            while popped < count:
                deliveries = pop_some(popper, min(batch, count - popped))
                popper.commit_many(deliveries)
                popped += len(deliveries)

    return timed(count, pop)


def iterate_grouped(client: CassqClient, count: int) -> Spent:
    """Pop one by one in a `for` loop, with commits that are written in groups; all are written at the end."""
    queue = client.queue

    def iterate() -> None:
        left = count
        with queue.popper(commit="grouped") as popper:
            for delivery in popper:
                with delivery:
                    left -= 1
                if not left:
                    break

    return timed(count, iterate)


def pop_one_by_one(client: CassqClient, count: int) -> Spent:
    """Pop one message and commit it before the next; what is left then is cleared away unmeasured."""
    with client.queue.popper() as popper:
        pop_some(popper, 1)[0].commit()  # finds the pipe

        def pop() -> None:
            for _ in range(count):
                pop_some(popper, 1)[0].commit()

        return timed(count, pop)


def drain(client: CassqClient) -> int:
    """Pop and commit whatever is left; never measured."""
    drained = 0
    with client.queue.popper() as popper:
        while deliveries := popper.pop_many(4000, timeout=1):
            popper.commit_many(deliveries)
            drained += len(deliveries)
    return drained


def settle(client: CassqClient) -> None:
    """Clear away what was consumed and end every thread."""
    client.settle()


def pop_some(popper: cassq.Popper, count: int) -> list[cassq.Delivery]:
    """Pop what is there already, or comes soon."""
    deliveries = popper.pop_many(count, timeout=PATIENCE_S)
    if not deliveries:
        raise RuntimeError(f"nothing came in {PATIENCE_S:.0f} s, and there should be more")
    return deliveries


#: The methods of the storage port that read.
READS = ("read_queues", "glance_queue", "list_pipes", "read_batches", "load_pipe", "read_dead", "count_dead")


def reads_of(client: CassqClient, methods: Collection[str] = READS) -> int:
    """Return how many reads of these kinds the client has made."""
    counts = client.store.telemetry.snapshot()
    return sum(counts[method].calls for method in methods if method in counts)


def idle_reads(client: CassqClient, seconds: float) -> float:
    """Wait in a pop for nothing; return how many reads a second that took, once it was at rest."""
    with client.queue.popper() as popper:
        if popper.pop(timeout=2):
            raise RuntimeError("the queue was to be idle, and a message came")
        before = reads_of(client)
        popper.pop(timeout=seconds)
        return (reads_of(client) - before) / seconds
