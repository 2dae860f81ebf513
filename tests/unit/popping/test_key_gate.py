"""Which of the messages in hand the gate lets out."""

from uuid import UUID, uuid1

import pytest

from cassq.model.ids import Source
from cassq.popping.key_gate import PipeKeys, Place, Standing, judge

HELD, OUT, FOREIGN, RESTING = Standing


class Scene:
    """Pipes of some sources, in the order in which they are named."""

    def __init__(self):
        self.pipes: list[PipeKeys] = []

    def pipe(self, *messages: str, source="a") -> UUID:
        """Add a pipe with messages such as "foo HELD"; from number 1 on."""
        told = {seq: each.split() for seq, each in enumerate(messages, 1)}
        standings = {seq: Standing[standing] for seq, (_, standing) in told.items()}
        keys = {seq: key for seq, (key, _) in told.items()}
        pipe = uuid1()
        self.pipes.append(PipeKeys(Source(source), pipe, standings, keys))
        return pipe

    def judge(self, *, is_ordered=True):
        return judge(self.pipes, is_ordered=is_ordered)


@pytest.fixture
def scene():
    return Scene()


@pytest.fixture(params=[True, False], ids=["ordered", "exclusive"])
def is_ordered(request):
    return request.param


class TestOneOfAKey:
    def test_is_let_out_at_a_time(self, scene, is_ordered):
        pipe = scene.pipe("foo HELD", "foo HELD", "bar HELD")
        assert scene.judge(is_ordered=is_ordered).free == [Place(pipe, 1), Place(pipe, 3)]

    @pytest.mark.parametrize("standing", ["OUT", "FOREIGN"])
    def test_waits_while_another_is_worked_on(self, scene, is_ordered, standing):
        scene.pipe(f"foo {standing}", source="b")
        pipe = scene.pipe("foo HELD", "bar HELD")
        assert scene.judge(is_ordered=is_ordered).free == [Place(pipe, 2)]

    def test_waits_also_for_one_in_a_younger_pipe(self, scene, is_ordered):
        scene.pipe("foo HELD")
        scene.pipe("foo OUT", source="b")
        assert scene.judge(is_ordered=is_ordered).free == []

    def test_that_waits_for_somebody_else_is_hopeless(self, scene, is_ordered):
        pipe = scene.pipe("foo HELD", "bar HELD", "bar HELD")
        scene.pipe("foo FOREIGN", "bar OUT", source="b")
        assert scene.judge(is_ordered=is_ordered).hopeless == [Place(pipe, 1)]

    def test_of_two_sources_goes_first_whose_pipe_is_first(self, scene, is_ordered):
        first = scene.pipe("foo HELD")
        second = scene.pipe("foo HELD", "bar HELD", source="b")
        assert scene.judge(is_ordered=is_ordered).free == [Place(first, 1), Place(second, 2)]

    def test_waits_for_a_later_one_of_its_source_that_is_out(self, scene, is_ordered):
        scene.pipe("foo HELD", "foo OUT")
        judged = scene.judge(is_ordered=is_ordered)
        assert (judged.free, judged.hopeless) == ([], [])

    def test_is_hopeless_with_all_others_of_its_key(self, scene, is_ordered):
        pipe = scene.pipe("foo HELD", "foo FOREIGN", "foo HELD")
        other = scene.pipe("foo HELD", "bar HELD", source="b")
        judged = scene.judge(is_ordered=is_ordered)
        assert judged.hopeless == [Place(pipe, 1), Place(pipe, 3), Place(other, 1)]
        assert judged.free == [Place(other, 2)]

    def test_that_waits_for_one_that_rests_or_is_out_is_not_hopeless(self, scene, is_ordered):
        scene.pipe("foo RESTING", "bar OUT", "foo HELD", "bar HELD")
        assert scene.judge(is_ordered=is_ordered).hopeless == []

    def test_that_rests_is_not_let_out(self, scene, is_ordered):
        scene.pipe("foo RESTING")
        judged = scene.judge(is_ordered=is_ordered)
        assert (judged.free, judged.hopeless) == ([], [])


class TestInOrder:
    def test_one_waits_for_an_earlier_one_that_rests(self, scene):
        pipe = scene.pipe("foo RESTING", "foo HELD", "bar HELD")
        assert scene.judge().free == [Place(pipe, 3)]

    def test_one_waits_for_an_earlier_one_of_an_older_pipe(self, scene):
        scene.pipe("foo RESTING")
        scene.pipe("foo HELD")
        assert scene.judge().free == []

    def test_those_of_other_sources_do_not_wait_for_one_that_rests(self, scene):
        scene.pipe("foo RESTING")
        other = scene.pipe("foo HELD", source="b")
        assert scene.judge().free == [Place(other, 1)]

    def test_an_earlier_one_that_is_held_goes_first(self, scene):
        first = scene.pipe("foo HELD")
        scene.pipe("foo HELD")
        assert scene.judge().free == [Place(first, 1)]

    def test_one_does_not_wait_for_a_later_one_that_rests(self, scene):
        pipe = scene.pipe("foo HELD", "foo RESTING")
        assert scene.judge().free == [Place(pipe, 1)]

    def test_one_does_not_wait_for_another_key_of_its_source(self, scene):
        older = scene.pipe("foo RESTING", "bar HELD")
        younger = scene.pipe("foo HELD", "baz HELD")
        assert scene.judge().free == [Place(older, 2), Place(younger, 2)]

    def test_only_where_order_is_asked_for(self, scene):
        pipe = scene.pipe("foo RESTING", "foo HELD")
        assert scene.judge(is_ordered=False).free == [Place(pipe, 2)]
