"""`cassq topic subscribe`, `unsubscribe` and `relay`: a topic's messages into queues.

Owns the words and the order of ending. What must not break: relays are closed however the command ends, so
that others have their partitions at once.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, TypedDict, Unpack

import click

import cassq
from cassq.cli.opened_topic import find_topic, opened_topic, start_in
from cassq.cli.output import print_json, say
from cassq.cli.queues import TICK_S, wait
from cassq.cli.session import Session, common_options, find_queue, pass_session
from cassq.cli.topic_messages import START, on_gone
from cassq.cli.values import to_start
from cassq.topics.topic_reader import Start

#: How often a command looks whether a relay has ended.
LOOK = timedelta(seconds=TICK_S)


class SubscribeOptions(TypedDict):
    """Which messages a queue gets."""

    types: tuple[str, ...]
    start: Start | int
    skip_gone: bool


@click.command()
@click.argument("name")
@click.argument("queue")
@click.option("--type", "types", metavar="PATTERN", multiple=True, help="As 'order.*'; may be repeated.")
@click.option(
    "--start",
    type=to_start,
    metavar="PLACE",
    default="earliest",
    show_default=True,
    help=f"A new subscription begins at {START}",
)
@click.option("--skip-gone", is_flag=True, help="Go on at the oldest message where retention was faster.")
@common_options
@pass_session
def subscribe(session: Session, name: str, queue: str, **options: Unpack[SubscribeOptions]) -> None:
    """Declare that a queue gets the topic's messages; fine if it does so already.

    Its messages wait in the topic until `cassq topic relay` runs, or a relay of a program.
    """
    with session.store() as store:
        topic = find_topic(store, name)
        find_queue(store, queue)
        made = topic.declare_subscription(
            queue,
            types=options["types"] or None,
            start=start_in(topic, options["start"]),
            on_gone=on_gone(is_skipping=options["skip_gone"]),
        )
    if session.is_json:
        print_json({"topic": name, **subscription_to_json(queue, made)})
    else:
        say(f"queue {queue} is subscribed to topic {name}; `cassq topic relay {name} {queue}` fills it")


@click.command()
@click.argument("name")
@click.argument("queue")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@pass_session
def unsubscribe(session: Session, name: str, queue: str, *, yes: bool) -> None:
    """End a subscription and its progress; what is in the queue stays there."""
    with opened_topic(session, name) as topic:
        session.confirm(f"End the subscription of queue {queue!r} to topic {name!r}?", is_sure=yes)
        topic.unsubscribe(queue)
    if session.is_json:
        print_json({"topic": name, "unsubscribed": queue})
    else:
        say(f"queue {queue} is not subscribed to topic {name} any more")


@click.command()
@click.argument("name")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@common_options
@click.make_pass_decorator(Session)
def relay(session: Session, name: str, queues: tuple[str, ...]) -> None:
    """Bring a topic's messages into subscribed queues, until Ctrl-C.

    Into those that are named, or into all that are subscribed when it starts. Any number may run at once:
    they share the partitions. Where one relay ends by an error, all that were started here end.
    """
    session.ending.begin(is_endless=True)
    with opened_topic(session, name) as topic, session.ending.politely() as wish, ExitStack() as opened:
        chosen = _chosen(topic, queues)
        relays = [opened.enter_context(_opened(topic, queue)) for queue in chosen]
        _say_running(session, name, chosen)
        while not wait(wish, LOOK):
            for each in relays:
                with _way_out(name, each.queue):
                    each.wait(0.0)


def _chosen(topic: cassq.Topic, named: Sequence[str]) -> list[str]:
    """Return the queues that are named, each once, or all that are subscribed.

    Raises: GroupNotFoundError: none is named, and none is subscribed.
    """
    found = list(dict.fromkeys(named)) or sorted(topic.subscriptions())
    if not found:
        raise cassq.GroupNotFoundError(
            f"topic {topic.name!r} has no subscription; `cassq topic subscribe {topic.name} QUEUE` makes one"
        )
    return found


def _opened(topic: cassq.Topic, queue: str) -> cassq.Relay:
    with _way_out(topic.name, queue):
        return topic.relay(queue)


@contextmanager
def _way_out(topic: str, queue: str) -> Iterator[None]:
    """Say of an error which relay it is of, and how to go on."""
    told = f"relay into queue {queue}"
    try:
        yield
    except cassq.OffsetGoneError as error:
        words = f"{told}: {error}; `cassq topic reset {topic} {queue} --to earliest` has it go on"
        raise cassq.OffsetGoneError(words, error.partition, error.wanted, error.oldest) from error
    except cassq.QueueNotFoundError as error:
        words = f"{told}: {error}; `cassq topic unsubscribe {topic} {queue}` ends the subscription"
        raise cassq.QueueNotFoundError(words) from error
    except cassq.GroupNotFoundError as error:
        words = f"{told}: {error}; `cassq topic subscribe {topic} {queue}` makes a subscription"
        raise cassq.GroupNotFoundError(words) from error


def _say_running(session: Session, name: str, queues: Sequence[str]) -> None:
    if session.is_json:
        print_json({"topic": name, "queues": list(queues)})
    else:
        say(f"cassq: topic {name} goes into {', '.join(queues)}")


def subscription_to_json(queue: str, subscription: cassq.Subscription) -> dict[str, Any]:
    """Return a subscription as JSON values; `types` is None where all are wanted."""
    return {
        "queue": queue,
        "types": None if subscription.types is None else list(subscription.types),
        "on_gone": subscription.on_gone,
    }
