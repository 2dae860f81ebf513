"""A queue in which everything is stored that can be stored, and the ways to spoil it.

Owns the scene that `test_corrupt_rows.py` plays on both stores, and what may go wrong with a column of each
type. What must not break: a way to spoil a column never makes a value that cassq may have written.
"""

import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from importlib import resources
from uuid import UUID

import cassq
from cassq.model.message import to_datetime
from cassq.model.rollup import Rollup
from cassq.storage.cassandra.cql_file import read_shapes
from cassq.storage.forms import DeadLetter

#: Texts that are one of a few words.
WORDS = {"phase", "state", "ending", "journal_kind"}

#: Texts that are JSON, in the embedded store.
JSON = {"past", "settings", "totals", "counted", "samples", "headers", "writers", "keys", "groups"}

#: What stands for topics, which `test_corrupt_topics.py` spoils.
OF_TOPICS = {"topics", "segments", "links", "batches", "topic_writers", "progress"}

#: Not the business of a queue: the versions of the schema, and the store's clock, which is read at the start;
#: and slots, of which a popper hears in the middle of its work, and tells its log;
#: and documents, of which the HTTP service hears.
APART = {"schema_version", "clock", "slots", "documents"} | OF_TOPICS

#: Spoilt ways that are no damage, and why.
SOUND = {
    ("waiting", "headers", "null"),  # no message of the batch has any
    ("pipes", "priority", "negative"),  # the lower, the later
    ("staged", "priority", "negative"),
    ("pending", "window_ms", "null"),  # of before there were windows
    ("pending", "reason", "null"),  # nobody said why
    ("pending", "expired", "null"),  # none did
    ("waiting", "ttl_ms", "null"),  # as long as the queue says
    ("waiting", "dues", "null"),  # each is due at once
    ("waiting", "origins", "null"),  # each is what it was
    ("pipes", "type", "null"),  # they have none
    ("staged", "type", "null"),
    ("pipes", "due_class", "null"),  # at once
    ("staged", "due_class", "null"),
    ("pipes", "moved_from", "null"),  # from nowhere
    ("staged", "moved_from", "null"),
    ("waiting", "keys", "null"),  # they have none
    ("pipes", "slot", "null"),
    ("staged", "slot", "null"),
    ("pending mark", "attempt", "null"),
    ("pending", "target", "null"),  # nothing was moved
    ("marks", "target", "null"),
    ("dead", "type", "null"),
    ("dead", "key", "null"),
    ("dead", "priority", "null"),  # of before letters kept it
    ("queues", "expired", "null"),
    *((table, column, "null") for table in ("heads", "pending") for column in ("journal", "journal_from")),
    ("heads", "journal_kind", "null"),  # of before there were kinds
    ("pending", "journal_kind", "null"),
    ("pending", "past", "null"),  # it is the first attempt, or nobody keeps a journal
    ("pending", "ended_at", "null"),  # nobody keeps a journal
    ("marks", "ended_at_ms", "null"),
    ("queues", "writers", "null"),  # of before there were staged pipes
    ("queues", "publications", "null"),
    ("queues", "settings", "other"),  # settings of a newer version are left alone
    ("dead", "body", "short"),  # any bytes are a body
    ("schedules", "target", "null"),  # all that was pushed is listed
    ("schedules", "body", "short"),
    ("dead", "removed", "null"),  # the embedded store's own trace; whatever it is, the letter is there or not
    ("dead", "removed", "text"),
    ("dead", "removed", "fraction"),
    ("dead", "removed", "negative"),
    ("dead", "removed", "blob"),
}

Way = tuple[str, str, str, object]  # table, column, name, value


@dataclass(frozen=True, slots=True)
class Scene:
    """One queue with a pipe to spoil and a sound one.

    Attributes:
        rolled_up_at_ms: when its one rollup was.
        spoilt: the older pipe: message 1 is committed, 2 came back, 3 is in somebody's hands, 4 waits.
        messages: what was pushed, by id.
        sound: the ids of the younger pipe's two messages.
        staged: a pipe of a bulk write that is not published.
        incarnation: of the queue, which has a schedule.
    """

    queue: str
    rolled_up_at_ms: int
    spoilt: UUID
    messages: Mapping[cassq.MessageId, bytes]
    sound: frozenset[cassq.MessageId]
    staged: UUID
    incarnation: UUID


HEADERS = {"colour": "blue"}


#: The rest of the key of a rollup that says no more than when it was.
ROLLED_UP_OF = "minute = 0 AND pusher = 'p' AND holder = 'h'"


def make_rollup(rolled_up_at_ms: int, minute_ms: int = 0, **figures: object) -> Rollup:
    """Return figures that could be true; those that are named as they are given."""
    known = {each.name: 3 for each in fields(Rollup)} | {"pusher": "p", "holder": "h"}
    return Rollup(**known | {"rolled_up_at_ms": rolled_up_at_ms, "minute_ms": minute_ms} | figures)


def make_scene(store: cassq.Store, name: str) -> Scene:
    """Make the queue, and close it."""
    queue = store.queue(name, pipe_messages_max=4, lease=timedelta(hours=1))
    bodies = [b"body %d" % number for number in range(1, 7)]
    ids = list(queue.push_many([(body, HEADERS) for body in bodies[:4]]))
    with queue.popper() as popper:
        deliveries = []
        while len(deliveries) < 3:
            deliveries += popper.pop_many(3 - len(deliveries), timeout=10)
        deliveries[0].commit()
        assert deliveries[1].rollback(timedelta(0))
    ids += queue.push_many([(body, HEADERS) for body in bodies[4:]])
    queue.close()
    assert len({each.pipe for each in ids}) == 2
    letter = DeadLetter(ids[0], b"dead", HEADERS, 1000, 5, "it was given up")
    store.storage.change_dead(name, added=[letter])
    now_ms = store.storage.list_pipes(name).now_ms
    store.storage.write_rollups(name, [make_rollup(now_ms)])
    with_staged = store.queue(name)
    write = with_staged.staging.open("loader", 1, "task")
    write.add(b"staged")
    (staged,) = write.close()
    with_staged.schedules.set("yearly", "0 0 1 1 *", b"a year has begun", HEADERS)
    with_staged.close()
    messages = dict(zip(ids, bodies, strict=True))
    incarnation = with_staged.record.incarnation
    return Scene(name, now_ms, ids[0].pipe, messages, frozenset(ids[4:]), staged, incarnation)


# -- who hears of it -----------------------------------------------------------------------------------


def hear(store: cassq.Store, scene: Scene, patience_s: float = 4.0) -> set[str]:
    """Make every public call that reads; return which of them raised `CorruptError`.

    Args:
        patience_s: how long the sound pipe's messages may take.
    """
    heard: set[str] = set()

    def note(call: str, make: Callable[[], object]) -> bool:
        try:
            make()
        except cassq.CorruptError as error:
            assert str(error)
            heard.add(call)
        return call not in heard

    if not note("open", lambda: store.queue(scene.queue)):
        return heard
    queue = store.queue(scene.queue)
    note("dead", lambda: list(queue.dead))
    note("schedules", lambda: list(queue.schedules))
    note("rollups", lambda: queue.rollups(to_datetime(scene.rolled_up_at_ms).date()))
    note("stats", queue.stats)
    note("pipes", queue.pipes)
    note("peek", lambda: queue.peek(100))
    note("status", lambda: [queue.status(each) for each in scene.messages])
    note("reap", lambda: note_failures(queue.reap(), scene, heard))
    note("pop", lambda: pop_all(queue, scene, heard, patience_s))
    note("purge", queue.purge)
    return heard


def note_failures(report: cassq.ReapReport, scene: Scene, heard: set[str]) -> None:
    """Note whether a reaper found the spoilt pipe spoilt; it must never delete it."""
    assert report.retired == 0
    if any(str(scene.spoilt) in failure or failure.startswith("schedules:") for failure in report.failed):
        heard.add("reap")


def pop_all(queue: cassq.Queue, scene: Scene, heard: set[str], patience_s: float) -> None:
    """Pop what comes; the sound pipe's messages must be among it."""
    came: set[cassq.MessageId] = set()
    with queue.popper() as popper:
        end = time.monotonic() + patience_s
        while not (came >= scene.sound and "pop" in heard) and time.monotonic() < end:
            try:
                delivery = popper.pop(timeout=0)
            except cassq.CorruptError:
                heard.add("pop")
                if came >= scene.sound:
                    break
                continue
            if delivery is None and came >= scene.sound:
                break
            if delivery is not None:
                assert delivery.body == scene.messages[delivery.message_id]
                assert dict(delivery.headers) == HEADERS
                assert delivery.pushed_at.year > 2000
                assert delivery.message_id not in came
                came.add(delivery.message_id)
    if came < scene.sound:
        heard.add("no pop at all")


#: Who must hear of a spoilt row of each table.
_PIPE = {"pop", "stats", "pipes", "peek", "status", "reap", "purge"}
HEARERS = {
    "queues": {"open"},
    "pipes": {"pop", "stats", "pipes", "peek", "reap", "purge"},
    "waiting": {"pop", "peek"},
    "pending": _PIPE,
    "heads": _PIPE,
    "runs": _PIPE,
    "marks": _PIPE,
    "dead": {"dead"},
    "statistics": {"rollups"},
    "staged": {"reap"},
    "schedules": {"schedules", "reap"},
}


# -- the embedded store --------------------------------------------------------------------------------


def sqlite_schema() -> sqlite3.Connection:
    """Return an empty database with cassq's tables."""
    db = sqlite3.connect(":memory:")
    db.executescript((resources.files("cassq") / "schema" / "sqlite.sql").read_text(encoding="utf-8"))
    return db


def sqlite_ways(tables_apart: Collection[str] = APART) -> Iterator[Way]:
    """Yield every way to spoil a column of the embedded store that is no key."""
    db = sqlite_schema()
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for _, column, kind, _, _, key in db.execute(f"PRAGMA table_info({table})").fetchall():
            if key or table in tables_apart:
                continue
            for name, value in _sqlite_values(column, kind):
                if (table, column, name) not in SOUND:
                    yield table, column, name, value
    db.close()


def _sqlite_values(column: str, kind: str) -> Iterator[tuple[str, object]]:
    yield "null", None
    match kind:
        case "INTEGER":
            yield from {"text": "melted", "fraction": 2.5, "negative": -7, "blob": b"\1"}.items()
            if column.endswith("_at_ms") or column == "not_before_ms":
                yield "no_date", 2**60
        case "BLOB":
            yield from {"text": "melted melted me", "short": b"\1\2\3", "number": 7}.items()
        case "TEXT" if column in JSON:
            yield from {"cut": "[", "number": "7", "empty": "null", "word": '"melted"'}.items()
            yield from {"other": '{"x": 1}', "list": '["x"]', "deep": "[" * 100_000, "blob": b"[]"}.items()
        case "TEXT":
            yield "blob", b"open"
            if column in WORDS:
                yield "word", "melted"
        case _:
            raise AssertionError(f"nobody has said how to spoil {column} {kind}")


# -- Cassandra -----------------------------------------------------------------------------------------

#: Which columns of `pending` a row of each kind has, beside its key.
PENDING = {
    ("head", -1, 0): "op cursor read_from floor phase last skipped dead purged rolled_back expired"
    " journal journal_from journal_kind",
    ("run", 2, 1): "last read_from state attempt lease_id leased_at lease_ms not_before holder rolled_back"
    " window_ms reason past",
    ("mark", 1, 2): "last ending target attempt ended_at",
}


def cassandra_ways() -> Iterator[Way]:
    """Yield every way to spoil a column of Cassandra's that is no key; of `pending` by kind of row."""
    for table, shape in read_shapes().items():
        if table in APART:
            continue
        regular = {name: column.type for name, column in shape.columns.items() if column.kind == "regular"}
        if table == "pending":
            assert set(regular) == set(" ".join(PENDING.values()).split()), "a column belongs to no kind"
        for column, kind in regular.items():
            for name, value in cassandra_values(column, kind):
                if (table, column, name) in SOUND:
                    continue
                if table != "pending":
                    yield table, column, name, value
                for (row, _, _), columns in PENDING.items() if table == "pending" else ():
                    if column in columns.split() and (f"pending {row}", column, name) not in SOUND:
                        yield f"pending {row}", column, name, value


def cassandra_values(column: str, kind: str) -> Iterator[tuple[str, object]]:
    yield "null", None
    match kind:
        case "bigint" | "int" | "tinyint":
            yield "negative", -7
        case "timestamp":
            yield "no_date", datetime(1960, 1, 1)  # noqa: DTZ001 - as the driver binds it
        case "text":
            if column in WORDS:
                yield "word", "melted"
        case "frozen<list<blob>>":
            yield from {"fewer": [b"x"], "empty": []}.items()
        case "frozen<list<frozen<map<text, text>>>>":
            yield "fewer", [{}]
        case "frozen<map<text, bigint>>":
            yield from {"range": {"lease_ms": 0}, "overflow": {"lease_ms": 2**62}}.items()
        case _ if kind.startswith(
            (
                "uuid",
                "timeuuid",
                "blob",
                "frozen<map<text, text>>",
                "frozen<map<text, uuid>>",
                "frozen<map<text, frozen<tuple",
                "frozen<set",
                "frozen<list",
            )
        ):
            return
        case _:
            raise AssertionError(f"nobody has said how to spoil {column} {kind}")


def cassandra_update(keyspace: str, scene: Scene, way: Way) -> tuple[str, tuple[object, ...]]:
    """Return the statement that spoils the scene in one way, and its values."""
    table, column, _, value = way
    table, _, row = table.partition(" ")
    rolled_up_at = to_datetime(scene.rolled_up_at_ms)
    keys = {
        "queues": ("queue = %s AND shard = 0", (scene.queue,)),
        "pipes": ("queue = %s AND shard = 0 AND pipe = %s", (scene.queue, scene.spoilt)),
        "staged": ("queue = %s AND shard = 0 AND pipe = %s", (scene.queue, scene.staged)),
        "waiting": ("pipe = %s AND first = 1", (scene.spoilt,)),
        "dead": ("queue = %s AND shard = 0 AND pipe = %s AND seq = 1", (scene.queue, scene.spoilt)),
        "schedules": ("incarnation = %s AND name = 'yearly'", (scene.incarnation,)),
        "statistics": (
            f"queue = %s AND shard = 0 AND day = %s AND rolled_up_at = %s AND {ROLLED_UP_OF}",
            (scene.queue, rolled_up_at.date(), rolled_up_at),
        ),
    }
    for name, seq, kind in PENDING:
        if name == row:
            keys["pending"] = (f"pipe = %s AND seq = {seq} AND kind = {kind}", (scene.spoilt,))
    where, values = keys[table]
    return f"UPDATE {keyspace}.{table} SET {column} = %s WHERE {where}", (value, *values)
