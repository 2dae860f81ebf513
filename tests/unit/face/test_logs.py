"""Log lines as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.trace import TracerProvider

import cassq
from cassq.logs import JsonFormatter


class Mute:
    def __str__(self):
        raise RuntimeError("not to be shown")

    __repr__ = __str__


def line_of(message="hello %s", *args, error=None, **extra):
    logger = logging.getLogger("cassq.a-test")
    if error:
        try:
            raise error
        except BaseException:
            info = sys.exc_info()
    record = logger.makeRecord(
        "cassq.a-test", logging.WARNING, __file__, 1, message, args, info if error else None, extra=extra
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert line.isascii()
    return json.loads(line)


def test_a_record_is_an_object_in_one_line():
    begun = datetime.now(UTC) - timedelta(milliseconds=1)
    told = line_of("hello %s", "wörld\nand more")
    assert begun <= datetime.fromisoformat(told.pop("time")) <= datetime.now(UTC)
    assert told.pop("process") > 0
    assert told == {"level": "WARNING", "logger": "cassq.a-test", "message": "hello wörld\nand more"}


def test_an_error_is_told_with_its_code():
    told = line_of("failed", error=cassq.DeliveryExpiredError("too late"))
    assert told["code"] == "delivery-expired"
    assert "too late" in told["exception"]
    assert line_of("failed", error=ValueError("bad"))["code"] == "ValueError"


def test_what_was_given_besides_is_told_and_hides_nothing():
    told = line_of("hello", order=7, when=timedelta(1), level="mine", mute=Mute())
    assert (told["order"], told["when"], told["level"], told["mute"]) == (
        7,
        "1 day, 0:00:00",
        "WARNING",
        "<Mute>",
    )


def test_a_line_names_the_span_that_it_was_written_in():
    assert "trace_id" not in line_of()
    with TracerProvider().get_tracer("a test").start_as_current_span("work") as span:
        told = line_of()
    assert int(told["trace_id"], 16) == span.get_span_context().trace_id
    assert int(told["span_id"], 16) == span.get_span_context().span_id


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, [Mute()], "\ud800", b"bytes"])
def test_what_json_has_no_word_for_is_told_all_the_same(value):
    assert "odd" in line_of("hello", odd=value)


def test_what_holds_itself_is_told_as_text():
    own = []
    own.append(own)
    assert line_of("hello", own=own)["own"] == "[[...]]"
    assert line_of("hello", own={(1, 2): 3})["own"] == "{(1, 2): 3}"
