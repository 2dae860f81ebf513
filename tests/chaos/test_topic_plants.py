"""Bugs that are planted in all workers of a topic: the judge finds each in what real processes noted."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("fault", "simulation")]

import crew
from crew import Seat
from topic_crew import Cast, TopicCrew, topic_crew
from topic_plants import PLANTS, VARIABLE
from topic_reckoning import BACK, GAPS, TWICE

from cassq.verification.ledger import Kind

pytestmark = pytest.mark.slow

CAST = Cast(
    partitions=2, publishers=3, writers=1, readers=1, groups=1, members=2, queues=1, relays=1, poppers=1
)
SETTINGS = {
    "lease": timedelta(seconds=2),
    "push_age_max": timedelta(seconds=1),
    "push_grace": timedelta(milliseconds=600),
    "clock_skew_max": timedelta(milliseconds=100),
    "pipe_messages_max": 200,
    "max_attempts": 1_000_000,
}
#: A bug does harm where processes meet in time: where they did not, they are let run again.
TRIES = 6

HABITS = ("--rate", "30", "--mishaps", "0", "--keyed", "0.03", "--work", "0.5", "--commit", "manual")


def freeze_member(team: TopicCrew) -> None:
    """Freeze a member with messages in hand, until another one has its partition."""
    member = team.of("consumer")[0]
    team.await_lines(member, Kind.DELIVERED, member.count(Kind.DELIVERED) + 1)
    member.freeze()
    mine = epochs(member)
    crew.wait_until(
        lambda: any(
            epochs(other).get(partition, 0) > epoch
            for partition, epoch in mine.items()
            for other in team.of("consumer")
            if other is not member
        ),
        "another one has a partition of it",
    )
    member.thaw()


def epochs(member: crew.Member) -> dict[str, int]:
    """Return the latest epoch in which a member was handed something, by partition."""
    return {line.pipe: line.attempt for line in member.lines() if line.kind is Kind.DELIVERED}


def kill(role: str):
    def strike(team: TopicCrew) -> None:
        for _ in range(4):
            victim = team.of(role)[0]
            team.await_any(Kind.COMMITTED, "popper", 20)
            team.kill(victim)
            team.start(role)

    return strike


def read_on(team: TopicCrew) -> None:
    team.await_more(Kind.DELIVERED, "reader", 300)


STRIKES = {
    "a member commits in the epoch of whoever has the partition": (freeze_member, {BACK, TWICE}),
    "a reader steps over what an answer lacks": (read_on, {GAPS}),
    "a relay fills a pipe that no progress names": (kill("relay"), {TWICE}),
    "a number is published twice": (kill("publisher"), {TWICE}),
}


def findings(folder, plant, strike):
    """Return what a run on a file of its own tells."""
    seat = Seat(environment={VARIABLE: plant})
    with topic_crew(
        f"sqlite:///{folder}/store.db",
        folder,
        queue="events",
        settings=SETTINGS,
        habits=HABITS,
        seat_of=lambda _: seat,
        cast=CAST,
    ) as team:
        team.start_cast()
        strike(team)
        return team.reckon_topic()


@pytest.mark.parametrize("plant", [each.name for each in PLANTS])
def test_the_judge_finds_a_planted_bug(tmp_path, plant):
    strike, kinds = STRIKES[plant]
    for number in range(TRIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        end = findings(folder, plant, strike)
        if any(map(end.verdict.count, kinds)):
            break

    assert any(map(end.verdict.count, kinds)), end.broken()


def test_nothing_is_found_where_none_is_planted(tmp_path):
    def strike(team: TopicCrew) -> None:
        freeze_member(team)
        kill("relay")(team)
        kill("consumer")(team)

    end = findings(tmp_path, "", strike)
    assert end.broken() == []
    assert end.verdict.messages > 100
