"""Plays faults on the crew of a topic.

Owns the order, as `stage` does for queues. What must not break: all of the log is read before it is judged.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from clocks import Clocks
from kinds import Fault
from pace import Course
from scene import Scene, seat_of
from stage import SETTLE_S, Stage
from topic_crew import Cast, TopicCrew, TopicReckoning, topic_crew
from topic_reckoning import FINDINGS
from topic_report import TopicResult

#: How many batches in a hundred a member has come again.
_AGAIN = "0.03"


@dataclass(frozen=True, slots=True)
class TopicStage(Stage):
    """Where faults of topics are played."""

    cast: Cast = field(default_factory=Cast)

    def blank(self, fault: Fault) -> TopicResult:
        """Return the result of a fault that was not played yet."""
        return TopicResult(fault.name, fault.words)

    def _act(self, scene: Scene, fault: Fault, result: TopicResult) -> TopicResult:
        team = scene.crew
        assert isinstance(team, TopicCrew)
        scene.doing = "starting"
        self.watch(scene)
        team.start_cast()
        fault.prepare(scene)
        scene.doing = "steady"
        scene.begin()
        scene.wait(self.seconds / 3)
        fault.strike(scene)
        scene.wait(max(self.seconds * 2 / 3, self.load.goal + SETTLE_S))
        course = scene.course()
        scene.doing = "draining"
        self.watch(scene)
        end = team.reckon_topic()
        return replace(judged(result, end, course), struck=dict(scene.struck))

    @contextmanager
    def _crew(self, fault: Fault, folder: Path, url: str, clocks: Clocks) -> Iterator[TopicCrew]:
        load = self.load
        with topic_crew(
            url,
            folder,
            timeout_s=load.push_timeout,
            queue=fault.name,
            settings=load.settings(),
            habits=(*load.habits(), "--keyed", _AGAIN, *fault.habits),
            seat_of=partial(seat_of, clocks),
            cast=self.cast,
        ) as team:
            yield team


def judged(result: TopicResult, end: TopicReckoning, course: Course) -> TopicResult:
    """Return a result with what was found."""
    verdict = end.verdict
    return replace(
        result,
        messages=verdict.messages,
        findings={kind: verdict.count(kind) for kind in FINDINGS},
        again=dict(verdict.again),
        unknown=verdict.unknown,
        refused=verdict.refused,
        gap_s=round(_longest_gap(end.acknowledged, course), 1),
        broken=end.broken(),
    )


def _longest_gap(times: Sequence[float], course: Course) -> float:
    """Return the longest time after the first blow in which nothing came."""
    first = course.blows[0]
    within = [at for at in times if first <= at <= course.ended]
    return max(later - earlier for earlier, later in pairwise([first, *within, course.ended]))
