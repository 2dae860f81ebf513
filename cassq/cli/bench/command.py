"""`cassq bench`: measures the store that one has.

Owns the options, the queue that is measured on, and what is printed; `cassq.cli.bench.throughput` and
`cassq.cli.bench.latency` measure. What must not break: only a queue that this run has made is ever pushed to
or deleted, and however the run ends, it is deleted.
"""

import os
import platform
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import click

import cassq
from cassq import installation
from cassq.cli.bench.figures import Figures
from cassq.cli.bench.latency import WARM_S, measure_latency
from cassq.cli.bench.messages import NUMBER_BYTES, Plan
from cassq.cli.bench.progress import progress
from cassq.cli.bench.throughput import measure_pop, measure_push
from cassq.cli.output import print_json, say
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.signals import Stopped
from cassq.cli.values import to_bytes, to_duration
from cassq.limits import BODY_BYTES_CEILING, MIB
from cassq.model.ids import check_name, shorten

MESSAGES_MAX = 10_000_000
RATE_MAX = 100_000

#: Every latency is kept until the end: an hour at 1000 messages a second, in some hundred MiB.
FLOW_MAX = 4_000_000

#: More than this is never written into somebody's store by a slip of a number.
VOLUME_BYTES_MAX = 16 * 1024 * MIB


def to_body_bytes(text: str) -> int:
    """Read the size of a body: 256, 64KiB."""
    size = to_bytes(text)
    if not NUMBER_BYTES <= size <= BODY_BYTES_CEILING:
        raise click.BadParameter(
            f"{shorten(text)} is out of range: {NUMBER_BYTES} bytes (a number stands in them) to "
            f"{BODY_BYTES_CEILING // MIB}MiB"
        )
    return size


def to_whole_seconds(text: str | int) -> int:
    """Read how long latencies are taken: whole seconds, an hour at most."""
    seconds = to_duration(str(text)) / timedelta(seconds=1)
    if not (1 <= seconds <= 3600 and seconds.is_integer()):
        raise click.BadParameter(f"{shorten(text)} is out of range: whole seconds, 1s to 3600s")
    return int(seconds)


@click.command()
@click.option(
    "--queue",
    "name",
    metavar="NAME",
    help="How to call the queue; there must be none of this name.  [default: bench-RANDOM]",
)
@click.option(
    "--messages",
    type=click.IntRange(1, MESSAGES_MAX),
    default=200_000,
    show_default=True,
    help="So many are pushed, and then popped, as fast as it goes.",
)
@click.option(
    "--body-bytes",
    type=to_body_bytes,
    metavar="NUMBER",
    default="256",
    show_default=True,
    help="Size of each body.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, RATE_MAX),
    default=1000,
    show_default=True,
    help="Messages a second while latencies are taken.",
)
@click.option(
    "--seconds",
    type=to_whole_seconds,
    metavar="DURATION",
    default="10s",
    show_default=True,
    help="How long they are taken.",
)
@common_options
@pass_session
def bench(session: Session, *, name: str | None, **load: int) -> None:
    """Measure a store: how fast it takes and gives messages, and how long one is on its way.

    Pushes by push_many, pops and commits by pop_many and commit_many, and then takes latencies at a steady
    rate: from when a message was due to be pushed until a popper in another process has it. Works in a queue
    of its own, which is deleted at the end. Exits 1 if a message was missing or came twice.
    """
    plan = Plan(**load)
    name = check_name(f"bench-{secrets.token_hex(4)}" if name is None else name)
    _check_volume(plan)
    url = session.require_url()
    _check_shared(url)
    with session.store() as store, session.ending.politely() as wish:

        def glance() -> None:
            if wish.number is not None:
                raise Stopped(wish.number)

        store.coordinator.may_take()  # a store that can never pop says so before anything is pushed
        with own_queue(store, name, plan.body_bytes) as queue:
            settings = _settings(store, queue, plan)
            say(", ".join(f"{key.replace('_', ' ')} {value}" for key, value in settings.items()))
            figures = _measure(queue, url, plan, glance)
    if session.is_json:
        print_json({"settings": settings, **figures.to_json(plan)})
    else:
        figures.print(plan)


@contextmanager
def own_queue(store: cassq.Store, name: str, body_bytes: int) -> Iterator[cassq.Queue]:
    """Make a queue, and delete it after the block.

    Raises: InvalidOptionError: there is one of this name.
    """
    taken = cassq.InvalidOptionError(
        f"queue {name!r} exists already in {store.url}, and the bench deletes its queue in the end: "
        "give --queue another name, or leave it out"
    )
    if name in store.queues():
        raise taken
    # Opening compares settings. One that nobody else has tells our queue from one that somebody makes under
    # this name in the same moment.
    mark = 10_000 + secrets.randbelow(900_000)
    body_bytes_max = max(body_bytes, cassq.QueueSettings().body_bytes_max)
    try:
        queue = store.queue(name, max_attempts=mark, body_bytes_max=body_bytes_max)
    except cassq.InvalidOptionError as error:
        raise taken from error
    try:
        yield queue
    except BaseException:
        with suppress(cassq.CassqError):
            _delete(store, queue)
        raise
    _delete(store, queue)


def _delete(store: cassq.Store, queue: cassq.Queue) -> None:
    try:
        # Whoever deleted it meanwhile may have made another one of its name.
        if store.find_queue(queue.name) is queue:
            store.delete_queue(queue.name)
    except cassq.QueueNotFoundError:
        pass
    except BaseException:
        say(f"cassq: queue {queue.name} may be left: `cassq queue delete {queue.name} --yes` removes it")
        raise


def _measure(queue: cassq.Queue, url: str, plan: Plan, glance: Callable[[], None]) -> Figures:
    with progress("push", plan.messages) as bar:
        push = measure_push(queue, plan, bar, glance)
    with progress("pop + commit", plan.messages) as bar:
        pop = measure_pop(queue, plan, bar, glance)
    queue.reap()  # what was popped is cleared away now, not while latencies are taken
    with progress("push to pop", plan.rate * (WARM_S + plan.seconds)) as bar:
        latencies = measure_latency(queue, url, plan, bar, glance)
    return Figures(push, pop, latencies)


def _settings(store: cassq.Store, queue: cassq.Queue, plan: Plan) -> dict[str, object]:
    return {
        "cassq": cassq.__version__,
        "python": platform.python_version(),
        "store": store.url,
        "queue": queue.name,
        "body_bytes": plan.body_bytes,
        "cores": _cores(),
    }


def _cores() -> int | None:
    """Return how many cores this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _check_volume(plan: Plan) -> None:
    """See that no run fills a disk by a slip.

    Raises: InvalidOptionError: it would push too much.
    """
    flowing = plan.rate * (WARM_S + plan.seconds)
    for count, most, told, way_out in (
        (plan.messages, MESSAGES_MAX, f"--messages {plan.messages}", "--messages"),
        (flowing, FLOW_MAX, f"--rate {plan.rate} for --seconds {plan.seconds}", "--rate or --seconds"),
    ):
        size = count * plan.body_bytes
        if count > most or size > VOLUME_BYTES_MAX:
            raise cassq.InvalidOptionError(
                f"{told} with --body-bytes {plan.body_bytes} makes {count} messages, {size / MIB:,.0f} MiB; "
                f"at most {most} and {VOLUME_BYTES_MAX // MIB:,} MiB: lower {way_out} or --body-bytes"
            )


def _check_shared(url: str) -> None:
    """See that another process can open the store.

    Raises: InvalidOptionError: it cannot.
    """
    target = installation.target_of(url)
    if isinstance(target, installation.SqliteTarget) and target.path is None:
        raise cassq.InvalidOptionError(
            "the bench's processes cannot share memory:; use --url sqlite:///FILE.db for a file"
        )
