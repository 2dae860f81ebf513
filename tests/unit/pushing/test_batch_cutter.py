"""Parts of many messages: whole, in order, and no larger than a write and a pipe may be."""

import pytest

from cassq.errors import BodyTooLargeError, InvalidOptionError
from cassq.limits import BATCH_MESSAGES_MAX
from cassq.model.message import NO_HEADERS, size_of
from cassq.model.settings import QueueSettings
from cassq.pushing.batch_cutter import BatchCutter, bounds_of

SMALL = QueueSettings(pipe_messages_max=3, body_bytes_max=2000, pipe_bytes_max=2**20)


def test_a_part_has_no_more_messages_than_a_pipe_or_a_batch():
    assert [len(bodies) for bodies, _ in BatchCutter(lambda _: SMALL, bounds_of).cut([b"x"] * 7)] == [3, 3, 1]
    many = [b"x"] * (BATCH_MESSAGES_MAX + 1)
    assert [len(bodies) for bodies, _ in BatchCutter(lambda _: QueueSettings(), bounds_of).cut(many)] == [
        BATCH_MESSAGES_MAX,
        1,
    ]
    assert list(BatchCutter(lambda _: SMALL, bounds_of).cut([])) == []


def test_a_part_has_no_more_bytes_than_a_batch():
    cutter = BatchCutter(lambda _: QueueSettings(), bounds_of)
    body = bytes(bounds_of(QueueSettings())[1] // 4)
    assert 4 * size_of(body, NO_HEADERS) >= bounds_of(QueueSettings())[1]
    parts = list(cutter.cut([body] * 9))
    assert sum(len(bodies) for bodies, _ in parts) == 9
    assert all(sum(map(size_of, *part)) <= bounds_of(QueueSettings())[1] for part in parts)


def test_every_message_keeps_its_headers_and_its_place():
    messages = [(b"%d" % number, {"number": str(number)}) for number in range(7)]
    parts = list(BatchCutter(lambda _: SMALL, bounds_of).cut([*messages, b"bare"]))
    assert [(body, dict(each)) for part in parts for body, each in zip(*part, strict=True)] == [
        *messages,
        (b"bare", {}),
    ]


@pytest.mark.parametrize(
    ("bad", "error"),
    [(bytes(2001), BodyTooLargeError), ((b"x",), InvalidOptionError), ("text", InvalidOptionError)],
)
def test_what_came_before_a_message_that_breaks_a_rule_is_yielded(bad, error):
    parts = BatchCutter(lambda _: SMALL, bounds_of).cut([b"1", b"2", b"3", b"4", bad])
    assert next(parts)[0] == (b"1", b"2", b"3")
    with pytest.raises(error):
        next(parts)


def test_a_single_body_is_not_many():
    with pytest.raises(InvalidOptionError, match="push_many takes bodies"):
        next(BatchCutter(lambda _: SMALL, bounds_of).cut(7))
