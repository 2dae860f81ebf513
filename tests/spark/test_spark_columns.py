"""The columns of messages, on the way out and on the way in, without a session of Spark."""

import math
import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from cassq.bulk.leased_run import LeasedRun
from cassq.bulk.snapshot import Fate, Section
from cassq.errors import InvalidOptionError
from cassq.model.ids import MessageId, new_pipe_id
from cassq.model.message import Batch, Origin
from cassq.model.pipe import Phase, PipeEntry
from cassq.model.ranges import Range
from cassq.spark import messages
from cassq.spark.messages import Columns, check_write_schema, messages_of
from cassq.spark.options import Target
from cassq.spark.rows import SCHEMA, RowBuilder
from cassq.spark.writing import BatchWriter
from cassq.storage.forms import DeadLetter

DUE = datetime(2031, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
DUE_MS = int(DUE.timestamp() * 1000)
STEERING = ("priority", "type", "key", "due", "ttl")
WHOLE = ByteType, ShortType, IntegerType, LongType


def rows_of(add, *names):
    builder = RowBuilder(to_arrow_schema(SCHEMA, timezone="UTC"))
    add(builder)
    (found,) = builder.take()
    return [tuple(row[name] for name in names) for row in found.to_pylist()]


def waiting(batch, **like):
    entry = PipeEntry(new_pipe_id(), "a pusher", **like)
    section = Section(batch, Fate.WAITING, None, Phase.OPEN)
    return entry, lambda builder: builder.add_section("q", entry, section)


class TestReading:
    def test_a_message_without_a_label_has_priority_0_and_nulls(self):
        _, add = waiting(Batch(1, (b"x", b"y"), None, 2, pushed_at_ms=5))
        assert rows_of(add, *STEERING) == [(0, None, None, None, None)] * 2

    def test_a_label_is_told_message_by_message(self):
        batch = Batch(3, (b"x", b"y"), None, 2, pushed_at_ms=5, ttl_ms=1500, dues=(DUE_MS, 0))
        _, add = waiting(batch, priority=7, type="refund", due_class=1)
        assert rows_of(add, *STEERING) == [(7, "refund", None, DUE, 1.5), (7, "refund", None, None, 1.5)]

    def test_a_key_is_told(self):
        _, add = waiting(Batch(1, (b"x", b"y"), None, 2, pushed_at_ms=5, keys=("a", "ü")), slot=3)
        assert rows_of(add, "key") == [("a",), ("ü",)]

    def test_what_was_moved_has_its_first_id_and_the_time_of_its_push(self):
        first = MessageId(new_pipe_id(), 17)
        batch = Batch(1, (b"x",), None, 1, pushed_at_ms=9000, dues=(DUE_MS,), origins=(Origin(first, 5000),))
        entry, add = waiting(batch, due_class=2)
        pushed_at = datetime.fromtimestamp(5, UTC)
        assert rows_of(add, "pipe", "seq", "message_id", "pushed_at", "due") == [
            (str(entry.pipe), 1, str(first), pushed_at, DUE)
        ]

    def test_a_dead_letter_keeps_priority_type_and_key(self):
        letter = DeadLetter(MessageId(new_pipe_id(), 1), b"x", {}, 0, 3, "why", 0, 4, "refund", "a")
        assert rows_of(lambda builder: builder.add_letter("q", letter), *STEERING, "message_id") == [
            (4, "refund", "a", None, None, str(letter.message_id))
        ]

    def test_a_leased_message_has_what_was_written_down_and_what_its_batch_has(self):
        run = LeasedRun(new_pipe_id(), uuid4(), 1, 1, (Range(1, 1),), 2, "refund")
        batch = Batch(1, (b"x",), None, 1, pushed_at_ms=5, ttl_ms=60_000, dues=(DUE_MS,))
        for each in (run, LeasedRun.from_json(run.to_json())):
            found = rows_of(
                lambda builder, each=each: builder.add_leased("q", each, "a reader", batch), *STEERING
            )
            assert found == [(2, "refund", None, DUE, 60.0)]

    def test_what_an_earlier_version_wrote_down_is_read(self):
        run = LeasedRun(new_pipe_id(), uuid4(), 1, 1, (Range(1, 4),))
        assert len(run.to_json()) == 5
        assert LeasedRun.from_json(run.to_json()) == run

    def test_columns_that_nobody_asked_for_are_not_made(self):
        schema = StructType([SCHEMA["due"], SCHEMA["type"]])
        builder = RowBuilder(to_arrow_schema(schema, timezone="UTC"))
        _, add = waiting(Batch(1, (), None, 2, pushed_at_ms=5, dues=(DUE_MS, DUE_MS)), type="t")
        add(builder)
        (found,) = builder.take()
        assert found.to_pylist() == [{"due": DUE, "type": "t"}] * 2


def frame(**columns):
    return pa.RecordBatch.from_pydict(
        {"body": pa.array([b"x"] * len(next(iter(columns.values())))), **columns}
    )


def schema_of(columns):
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def steering_of(**columns):
    return [options for _, _, options in messages_of(frame(**columns))]


class TestWriting:
    def test_without_columns_for_it_nothing_steers_a_message(self):
        batch = pa.RecordBatch.from_pydict(
            {
                "body": pa.array(["ü", ""]),
                "headers": pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string())),
            }
        )
        assert list(messages_of(batch)) == [("ü".encode(), {"a": "1"}, {}), (b"", {}, {})]

    @pytest.mark.parametrize(
        ("name", "column", "expected"),
        [
            ("priority", pa.array([9, None], pa.int8()), 9),
            ("priority", pa.array([9, None], pa.int64()), 9),
            ("type", pa.array(["refund", None]), "refund"),
            ("type", pa.array(["refund", None], pa.large_string()), "refund"),
            ("key", pa.array(["customer 4", None]), "customer 4"),
            ("due", pa.array([DUE_MS * 1000, None], pa.timestamp("us", "UTC")), DUE),
            ("due", pa.array([DUE_MS * 1000, None], pa.timestamp("us", "Asia/Kolkata")), DUE),
            ("ttl", pa.array([90, None], pa.int32()), timedelta(seconds=90)),
            ("ttl", pa.array([1.5, None], pa.float64()), timedelta(seconds=1.5)),
            ("ttl", pa.array([Decimal("1.5"), None], pa.decimal128(4, 1)), timedelta(seconds=1.5)),
            ("ttl", pa.array([1_500_000, None], pa.duration("us")), timedelta(seconds=1.5)),
        ],
        ids=lambda value: str(getattr(value, "type", None) or value),
    )
    def test_a_column_steers_a_message_and_null_is_none(self, name, column, expected):
        assert steering_of(**{name: column}) == [{name: expected}, {}]

    def test_each_row_has_what_it_has(self):
        columns = {
            "priority": pa.array([1, None, 3]),
            "type": pa.array([None, "refund", "refund"]),
            "ttl": pa.array([None, None, 60]),
        }
        assert steering_of(**columns) == [
            {"priority": 1},
            {"type": "refund"},
            {"priority": 3, "type": "refund", "ttl": timedelta(minutes=1)},
        ]

    @pytest.mark.parametrize(
        ("name", "column", "words"),
        [
            ("ttl", pa.array([math.nan]), "ttl=nan is no number of seconds"),
            ("ttl", pa.array([1e300]), "ttl=1e[+]300 is no number of seconds"),
            ("due", pa.array([2**62], pa.timestamp("us", "UTC")), "no time of the years 1 to 9999"),
        ],
    )
    def test_what_python_cannot_hold_is_refused(self, name, column, words):
        with pytest.raises(InvalidOptionError, match=words):
            steering_of(**{name: column})

    @pytest.mark.parametrize(
        "columns",
        [
            {"body": BinaryType()},
            {"ttl": DoubleType(), "body": StringType(), "headers": MapType(StringType(), StringType())},
            {"body": StringType(), "type": StringType(), "key": StringType(), "due": TimestampType()},
            *({"body": StringType(), "priority": whole()} for whole in WHOLE),
            *({"body": StringType(), "ttl": number()} for number in (*WHOLE, FloatType, DoubleType)),
            {"body": StringType(), "ttl": DecimalType(10, 3)},
            {"body": StringType(), "ttl": DayTimeIntervalType()},
            {"body": StringType(), "ttl": DayTimeIntervalType(1, 2)},
        ],
        ids=str,
    )
    def test_a_frame_may_have_these_columns(self, columns):
        check_write_schema(schema_of(columns))

    @pytest.mark.parametrize(
        ("columns", "words"),
        [
            ({"id": LongType()}, "there is no column 'body', only 'id'"),
            ({"body": LongType()}, "column 'body' is bigint: a body is binary"),
            ({"headers": StringType()}, "column 'headers' is string: headers are map<string,string>"),
            ({"headers": MapType(StringType(), LongType())}, "column 'headers' is map<string,bigint>"),
            ({"priority": StringType()}, "column 'priority' is string: .* whole number"),
            ({"priority": DoubleType()}, "column 'priority' is double: .* whole number"),
            ({"type": LongType()}, "column 'type' is bigint: .* cast it"),
            ({"key": LongType()}, "column 'key' is bigint: .* cast it"),
            ({"due": TimestampNTZType()}, "column 'due' is timestamp_ntz: .* time zone"),
            ({"due": DateType()}, "column 'due' is date"),
            ({"ttl": StringType()}, "column 'ttl' is string: .* number of seconds"),
            ({"ttl": YearMonthIntervalType()}, "column 'ttl' is interval year to month"),
            (
                {"delay": DoubleType()},
                "column 'delay' has no place .* body, headers, priority, type, key, due and ttl: drop it",
            ),
        ],
    )
    def test_other_columns_and_types_are_refused(self, columns, words):
        body = {} if "id" in columns else {"body": StringType()}
        with pytest.raises(InvalidOptionError, match=words):
            check_write_schema(schema_of(body | columns))

    def test_what_a_snapshot_shows_can_be_written_as_it_is(self):
        names = ("body", "headers", *STEERING)
        check_write_schema(StructType([SCHEMA[name] for name in names]))
        batch = Batch(1, (b"x",), ({"a": "b"},), 1, pushed_at_ms=5, ttl_ms=1500, dues=(DUE_MS,))
        _, add = waiting(batch, priority=7, type="refund", due_class=1)
        builder = RowBuilder(to_arrow_schema(SCHEMA, timezone="UTC"))
        add(builder)
        (found,) = builder.take()
        assert list(messages_of(found.select(names))) == [
            (
                b"x",
                {"a": "b"},
                {"priority": 7, "type": "refund", "due": DUE, "ttl": timedelta(seconds=1.5)},
            )
        ]


class TestAnExecutorThatIsOlder:
    def test_has_no_such_class_where_it_knows_no_such_columns(self, monkeypatch):
        columns = check_write_schema(StructType([StructField("body", BinaryType())]))
        writer = BatchWriter(Target("sqlite:///x.db", "q"), "once", 0, columns)
        sent = pickle.dumps(writer)
        monkeypatch.delattr(messages, "Columns")
        with pytest.raises(AttributeError, match="Columns"):
            pickle.loads(sent)

    def test_may_be_newer_than_the_driver(self):
        # Given a writer as an older driver pickled it
        writer = object.__new__(BatchWriter)
        vars(writer).update(target=Target("sqlite:///x.db", "q"), writer="once", batch=0)
        pickle.loads(pickle.dumps(writer)).columns.check()

    def test_tells_which_column_it_does_not_know(self):
        with pytest.raises(InvalidOptionError, match="column 'colour' is not known to the cassq of this"):
            Columns(("body", "colour")).check()

    def test_knows_those_that_it_may_be_sent(self):
        Columns(("body", "headers", *STEERING)).check()
