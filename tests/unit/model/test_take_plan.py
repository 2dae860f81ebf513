"""What one take hands out, against the plain words of the rule."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cassq.limits import NO_LIMIT, UNDECIDED
from cassq.model.ids import new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, PipeState
from cassq.model.progress import Progress
from cassq.model.take_plan import Holder, Room, plan_fresh

quietly = settings(derandomize=True, deadline=None)

LESSEE = Holder("me", 1000)


def batches_of(counts):
    batches, first = [], 1
    for count in counts:
        bodies = tuple(b"%d" % seq for seq in range(first, first + count))
        batches.append(Batch(first, bodies, None, count, pushed_at_ms=5))
        first += count
    return batches


@st.composite
def scenes(draw):
    batches = batches_of(draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)))
    pushed = batches[-1].last
    cursor = draw(st.integers(0, pushed - 1))
    last = draw(st.sampled_from([UNDECIDED, *range(cursor + 1, pushed + 1)]))
    ended = draw(st.sets(st.integers(cursor + 1, pushed)))
    return [batch for batch in batches if batch.last > cursor], cursor, last, ended


@quietly
@given(scenes(), st.integers(1, 30), st.sampled_from([NO_LIMIT, *range(1, 31)]))
def test_a_fresh_take_hands_out_what_has_not_ended_in_order_and_no_more_than_wanted(scene, wanted, until):
    # Given a pipe of which something waits, some of it cancelled, perhaps with its end decided
    batches, cursor, last, ended = scene
    marks = tuple(Mark(seq, seq, End.PURGED) for seq in ended)
    head = Head(new_token(), cursor=cursor, read_from=batches[0].first, last=last)
    progress = Progress(PipeState(head, (), marks, 0))

    # When messages are wanted, perhaps up to a number only
    until = max(until, cursor + 1)
    moved, plan = plan_fresh(progress, batches, Room(wanted, until=until), LESSEE)

    # Then these are the next ones, and the cursor stands behind what was decided on
    reach = min(last, until, batches[-1].last)
    due = [seq for seq in range(cursor + 1, reach + 1) if seq not in ended][:wanted]
    handed = [(seq, body) for seq, body, *_ in plan.taken.messages] if plan else []
    assert handed == [(seq, b"%d" % seq) for seq in due]
    assert moved.cursor <= reach
    assert moved.cursor == reach or len(due) == wanted
    assert moved.skipped == moved.cursor - cursor - len(due)
    # And whoever reads on from there finds what comes next
    assert any(batch.first == moved.read_from for batch in batches) or moved.read_from > batches[-1].last
    assert moved.read_from <= moved.cursor + 1


@quietly
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 20))
def test_a_take_carries_no_more_bytes_than_it_may_but_one_message_in_any_case(sizes, limit):
    batch = Batch(1, tuple(bytes(size) for size in sizes), None, len(sizes), 5)
    progress = Progress(PipeState(Head(new_token()), (), (), 0))

    with_limit = plan_fresh(progress, [batch], Room(100, limit), LESSEE)[1].taken

    assert with_limit.size <= limit or with_limit.count == 1
    assert with_limit.count == len(sizes) or with_limit.size + sizes[with_limit.count] > limit
