"""What the raw programs are told to do, with the time it took; bodies and pipes are made before."""

from collections.abc import Sequence
from functools import partial

from _bench.clients.bodies import make_bodies
from _bench.clients.ceiling import RawCassandra
from _bench.clients.ceiling_sqlite import RawSqlite
from _bench.clients.client_process import Spent, timed

RUN_MESSAGES = 4000


def push(client: RawCassandra, count: int, body_bytes: int, batches: Sequence[int], pipes: int) -> Spent:
    """Push into `pipes` pipes at once, with batches of each of these sizes; return the fastest.

    Which size is the fastest depends on the machine, and a ceiling is what no other way is above. What the
    last one pushed stays there to be popped.
    """
    bodies = make_bodies(count, body_bytes)
    found = []
    for batch in batches:
        client.clear()
        lanes = client.opened(count, pipes)
        found.append(timed(count, partial(client.push, bodies, batch, lanes)))
    return min(found, key=lambda spent: spent.seconds)


def pop(client: RawCassandra | RawSqlite, count: int) -> Spent:
    """Read, take and mark everything that was pushed."""
    spent = timed(count, lambda: client.pop(count, RUN_MESSAGES))
    client.clear()
    return spent


def mark_each(client: RawCassandra, count: int) -> Spent:
    """Mark messages one by one."""
    client.mark_each(1)  # prepares the statement
    return timed(count, lambda: client.mark_each(count))


def push_file(client: RawSqlite, count: int, body_bytes: int, batch: int) -> Spent:
    """Push batches into a file, each durable before the next."""
    bodies = make_bodies(count, body_bytes)
    return timed(count, lambda: client.push(bodies, batch))


def push_file_each(client: RawSqlite, count: int, body_bytes: int) -> Spent:
    """Push one by one into a file, each durable before the next."""
    spent = push_file(client, count, body_bytes, 1)
    client.clear()
    return spent
