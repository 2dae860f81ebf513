"""`cassq topic …`: declare topics, look at them and at their groups, clear them, end them.

Owns nothing but words; those for messages are in `cassq.cli.topic_messages`, those for queues that are
subscribed in `cassq.cli.subscriptions`.
"""

from collections.abc import Mapping
from typing import Any, cast

import click

import cassq
from cassq.cli import subscriptions, topic_messages
from cassq.cli.opened_topic import find_topic, opened_topic, start_in
from cassq.cli.output import count_of, print_json, print_table, say
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.setting_options import describe_settings, say_altered, setting_options, settings_named
from cassq.cli.topic_publish import publish
from cassq.cli.values import to_start
from cassq.model.options import AlterTopicOptions, TopicOptions
from cassq.topics.topic_reader import Start

SETTINGS = cassq.TopicSettings.known()


@click.group("topic")
def topics() -> None:
    """Publish into topics, read them again, consume them by groups, or fan them out into queues."""


for command in (
    *(publish, topic_messages.read, topic_messages.follow, topic_messages.consume),
    *(subscriptions.subscribe, subscriptions.unsubscribe, subscriptions.relay),
):
    topics.add_command(command)


@topics.command()
@click.argument("name")
@setting_options(SETTINGS, is_new=True)
@common_options
@pass_session
def create(session: Session, /, name: str, **settings: object) -> None:
    """Create a topic; fine if it is there already with the settings that are named."""
    with session.store() as store:
        topic = store.topic(name, **cast(TopicOptions, settings_named(settings)))
        told = topic.settings
        url = store.url
    if session.is_json:
        _print_settings(name, told)
    else:
        say(f"topic {name} stands in {url}")


@topics.command()
@click.argument("name")
@setting_options(SETTINGS, is_new=False)
@common_options
@pass_session
def alter(session: Session, /, name: str, **settings: object) -> None:
    """Give a topic other settings while it is in use; those that are not named stay."""
    named = settings_named(settings)
    if not named:
        raise click.UsageError(
            "name what to alter, for example --retention 7d; `cassq topic info` tells what stands"
        )
    with session.store() as store:
        before = find_topic(store, name).settings
        after = store.alter_topic(name, **cast(AlterTopicOptions, named))
    if session.is_json:
        _print_settings(name, after)
    else:
        say_altered(f"topic {name}", named, before, after)


@topics.command("list")
@click.option("--names", is_flag=True, help="Only the names; reads no partition.")
@common_options
@pass_session
def list_topics(session: Session, *, names: bool) -> None:
    """List the topics of a store: partitions, messages, bytes, groups."""
    with session.store() as store:
        found = [{"topic": name} if names else _sum_of(store.find_topic(name)) for name in store.topics()]
    if session.is_json:
        print_json(found)
    elif names:
        for each in found:
            click.echo(each["topic"])
    else:
        print_table(found)


def _sum_of(topic: cassq.Topic) -> dict[str, Any]:
    stats = topic.stats()
    return {
        "topic": topic.name,
        "partitions": topic.partitions,
        "messages": sum(each.latest - each.oldest for each in stats),
        "size": sum(each.size for each in stats),
        "groups": len(topic.groups()),
    }


@topics.command()
@click.argument("name")
@common_options
@pass_session
def info(session: Session, name: str) -> None:
    """Tell the settings of a topic, the figures of its partitions, the lag of groups and subscriptions.

    A subscription is a group, too: `cassq topic groups` tells its lag by partition.
    """
    with opened_topic(session, name) as topic:
        settings = topic.settings
        partitions = [each._asdict() for each in topic.stats()]
        lags = {group: sum(each.lag for each in topic.lag(group)) for group in topic.groups()}
        subscribed = topic.subscriptions()
    groups = [{"group": group, "lag": lag} for group, lag in lags.items() if group not in subscribed]
    queues = [
        {**subscriptions.subscription_to_json(queue, subscribed[queue]), "lag": lags.get(queue)}
        for queue in sorted(subscribed)
    ]
    if session.is_json:
        figures = {"partitions": partitions, "groups": groups, "subscriptions": queues}
        print_json({"topic": name, "settings": settings.to_json(), **figures})
        return
    print_table(describe_settings(SETTINGS, settings))
    shown = [{**each, "types": ", ".join(each["types"] or ["all"])} for each in queues]
    for rows in (partitions, groups, shown):
        if rows:
            click.echo()
            print_table(rows)


@topics.command()
@click.argument("name")
@common_options
@pass_session
def groups(session: Session, name: str) -> None:
    """Tell how far each group is in each partition, and who has it."""
    with opened_topic(session, name) as topic:
        found = [row for group in topic.groups() for row in _lag_of(topic, group)]
    if session.is_json:
        print_json(found)
        return
    if not found:
        say(f"topic {name!r} has no groups")
    print_table(found)


def _lag_of(topic: cassq.Topic, group: str) -> list[dict[str, Any]]:
    return [
        {
            "group": group,
            "partition": each.partition,
            "next": each.next,
            "latest": each.latest,
            "lag": each.lag,
            "owner": each.owner or None,
            "epoch": each.epoch,
        }
        for each in topic.lag(group)
    ]


@topics.command()
@click.argument("name")
@click.argument("group")
@click.option(
    "--to",
    type=to_start,
    required=True,
    metavar="PLACE",
    help="earliest, latest, a time in ISO 8601 with its zone, OFFSET, or PARTITION:OFFSET[,…].",
)
@common_options
@pass_session
def reset(session: Session, name: str, group: str, to: Start | int) -> None:
    """Have a group go on somewhere else; its members hear of it within seconds.

    Where PLACE names partitions, the others stay as they are. What members have in hand is not committed any
    more: some of it may come again.
    """
    with opened_topic(session, name) as topic:
        topic.reset(group, start_in(topic, to))
        found = _lag_of(topic, group)
    if session.is_json:
        print_json({"topic": name, "group": group, "partitions": found})
        return
    places = ", ".join(f"{each['partition']}:{each['next']}" for each in found)
    say(f"group {group} of topic {name} goes on at {places}")


@topics.command("delete-group")
@click.argument("name")
@click.argument("group")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@pass_session
def delete_group(session: Session, name: str, group: str, *, yes: bool) -> None:
    """Delete a group and its progress; the messages stay."""
    with opened_topic(session, name) as topic:
        session.confirm(f"Delete group {group!r} of topic {name!r}?", is_sure=yes)
        topic.delete_group(group)
    _tell_done(session, {"topic": name, "deleted_group": group}, f"deleted group {group} of topic {name}")


@topics.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@pass_session
def clear(session: Session, name: str, *, yes: bool) -> None:
    """Delete every message that was published until now; offsets go on, groups stay."""
    with opened_topic(session, name) as topic:
        session.confirm(f"Delete every message of topic {name!r}?", is_sure=yes)
        count = topic.clear()
    _tell_done(
        session, {"topic": name, "segments": count}, f"deleted {count_of(count, 'segment')} of topic {name}"
    )


@topics.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@pass_session
def delete(session: Session, name: str, *, yes: bool) -> None:
    """Delete a topic with all its messages and groups."""
    with session.store() as store:
        find_topic(store, name)
        session.confirm(f"Delete topic {name!r} with all its messages and groups?", is_sure=yes)
        store.delete_topic(name)
    _tell_done(session, {"topic": name, "state": "deleted"}, f"topic {name} is deleted")


def _print_settings(name: str, settings: cassq.TopicSettings) -> None:
    print_json({"topic": name, "settings": settings.to_json()})


def _tell_done(session: Session, told: Mapping[str, Any], words: str) -> None:
    if session.is_json:
        print_json(told)
    else:
        say(words)
