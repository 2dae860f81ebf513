"""What `cassq doctor` makes of what a cluster says of itself."""

from dataclasses import replace
from datetime import timedelta

import pytest

import cassq
from cassq.cli.doctor import cassandra as doctor_cassandra
from cassq.cli.doctor import pipes as doctor_pipes
from cassq.cli.doctor import replicas as doctor_replicas
from cassq.cli.doctor import sqlite as doctor_sqlite
from cassq.cli.doctor.finding import Level
from cassq.installation import SqliteTarget
from cassq.storage.cassandra.facts import ServerFacts, WaitingHints
from cassq.storage.cassandra.session import Node
from cassq.storage.sqlite.facts import read_facts

HOUR = 3600.0
NOW = 1_800_000_000.0
NAMES = ("10.0.0.1:9042", "10.0.0.2:9042", "10.0.0.3:9042")
WINDOW, GRACE = timedelta(hours=3), timedelta(days=1)

SOUND = ServerFacts(
    nodes=tuple(Node(name, "dc1", "r1", "5.0.9", is_up=True) for name in NAMES),
    replication={"class": "SimpleStrategy", "replication_factor": "3"},
    gc_grace_s={"pending": 86400},
    settings={},
    clock_offset_ms=0,
    clock_precision_ms=1,
    now=NOW,
    unreadable=(),
    unwritable=(),
    closed=(),
    hints=(),
    started_at=dict.fromkeys(NAMES, NOW - 50 * HOUR),
    repaired_at={"pending": NOW - 5 * HOUR},
)


def without(*places):
    nodes = [replace(node, is_up=place not in places) for place, node in enumerate(SOUND.nodes)]
    return replace(SOUND, nodes=tuple(nodes))


def replicas(server):
    return [(each.level, each.told) for each in doctor_replicas.examine(server, WINDOW, GRACE)]


def test_two_of_three_nodes_down_is_told_with_their_names_and_what_stops():
    server = without(1, 2)

    nodes = doctor_cassandra._judge_nodes(server)
    (replication,) = doctor_cassandra._judge_replication(server, None)

    assert nodes.told == "2 of 3 nodes down: 10.0.0.2:9042, 10.0.0.3:9042"
    assert replication.level is Level.FAIL
    assert "1 of 3 nodes are up: pushes, pops, commits and figures do not work" in replication.told
    assert replication.way_out == "bring 1 back"


def test_nodes_down_in_a_wide_cluster_stop_what_has_its_replicas_there():
    more = tuple(Node(f"10.0.1.{place}:9042", "dc1", "r1", "5.0.9", is_up=True) for place in range(3))
    server = replace(without(1, 2), nodes=without(1, 2).nodes + more)

    (replication,) = doctor_cassandra._judge_replication(server, None)

    assert replication.level is Level.FAIL
    assert "that have 2 replicas there can be neither written nor read; the others work" in replication.told


def test_one_of_three_down_stops_nothing():
    (replication,) = doctor_cassandra._judge_replication(without(1), None)

    assert replication.level is Level.OK


@pytest.mark.parametrize(("sync", "warned"), [("periodic", True), ("group", False), (None, False)])
def test_one_replica_with_a_periodic_commit_log_is_warned_of(sync, warned):
    server = replace(
        SOUND, replication={"class": "x", "replication_factor": "1"}, settings={"commitlog_sync": sync}
    )

    found = list(doctor_cassandra._judge_replication(server, None))

    assert [each.level for each in found if each.check == "commitlog"] == [Level.WARN] * warned


def test_nodes_that_missed_nothing_are_fine():
    assert replicas(SOUND) == [(Level.OK, "no node is known to have missed anything")]


@pytest.mark.parametrize(
    ("hours", "words"), [(5, "longer than max_hint_window"), (30, "longer than gc_grace_seconds")]
)
def test_a_node_that_is_down_for_too_long_is_told_with_how_long(hours, words):
    hints = (WaitingHints(NAMES[1], False, NOW - hours * HOUR, NOW - 2 * HOUR),)

    ((level, told),) = replicas(replace(without(1), hints=hints))

    assert level is Level.WARN
    assert NAMES[1] in told
    assert words in told


def test_a_node_that_is_down_for_a_moment_is_a_hint():
    hints = (WaitingHints(NAMES[1], False, NOW - HOUR, NOW),)

    ((level, told),) = replicas(replace(without(1), hints=hints))

    assert level is Level.HINT
    assert told.startswith(f"{NAMES[1]} has been away for 1:00:00 at least")


def test_a_node_that_is_down_without_a_hint_is_asked_about():
    ((level, told),) = replicas(without(1))

    assert level is Level.HINT
    assert told.startswith(f"since when {NAMES[1]} is down is not known")


def test_hints_that_will_be_thrown_away_are_told():
    hints = (WaitingHints(NAMES[1], True, NOW - 30 * HOUR, NOW - 28 * HOUR),)

    assert replicas(replace(SOUND, hints=hints))[0][0] is Level.WARN


def test_tables_that_nobody_repairs_are_told():
    (found,) = replicas(replace(SOUND, repaired_at={"pending": NOW - 30 * HOUR, "dead": 0.0, "queues": NOW}))

    assert found == (Level.WARN, "not repaired within gc_grace_seconds (1 day, 0:00:00): dead, pending")


def test_a_node_that_was_started_after_the_last_repair_is_asked_about():
    started = {**SOUND.started_at, NAMES[2]: NOW - HOUR}

    (level, told) = replicas(replace(SOUND, started_at=started))[0]

    assert level is Level.HINT
    assert told.startswith(f"started again since the last repair: {NAMES[2]}; whether")


def test_a_cluster_that_has_just_been_built_is_fine():
    server = replace(SOUND, repaired_at={"pending": 0.0}, started_at=dict.fromkeys(NAMES, NOW - HOUR))

    assert replicas(server)[0][0] is Level.OK


def test_where_repairs_may_not_be_read_the_operator_is_asked():
    assert replicas(replace(SOUND, repaired_at=None))[0][0] is Level.HINT


@pytest.mark.parametrize(
    ("denied", "is_watching", "level", "grants"),
    [
        ({}, False, Level.OK, []),
        ({"unwritable": ("dead",)}, True, Level.OK, []),
        ({"unwritable": ("dead",)}, False, Level.FAIL, ["MODIFY"]),
        ({"unreadable": ("pipes",)}, True, Level.FAIL, ["SELECT"]),
        ({"unreadable": ("pipes",), "unwritable": ("dead",)}, False, Level.FAIL, ["SELECT", "MODIFY"]),
    ],
)
def test_every_permission_that_is_missing_is_named(denied, is_watching, level, grants):
    server = replace(SOUND, **denied)

    (found,) = doctor_cassandra._judge_permissions(server, "orders", is_watching=is_watching)

    assert found.level is level
    named = [words.split()[1] for words in found.way_out.split("; ") if words]
    assert named == grants
    for tables in denied.values():
        assert tables[0] in found.told


def test_every_keyspace_that_may_not_be_read_is_named():
    server = replace(SOUND, closed=("system_distributed", "system_views"))

    (_, found) = doctor_cassandra._judge_permissions(server, "orders", is_watching=False)

    assert found.way_out == (
        "GRANT SELECT ON KEYSPACE system_distributed TO it; GRANT SELECT ON KEYSPACE system_views TO it"
    )


def test_one_trouble_of_many_queues_is_told_once_with_a_count(monkeypatch):
    monkeypatch.setattr(doctor_pipes, "PATIENCE", timedelta(days=-1))
    with cassq.connect("memory:") as store:
        for place in range(7):
            store.queue(f"q{place}").push(b"in a pipe that stays open")

        (found,) = doctor_pipes.examine(store)

    assert found.level is Level.WARN
    assert found.told.startswith("7 queues (q0, q1, q2, q3, q4 and 2 more): 7 pipes of dead pushers")


def test_a_schedule_that_nobody_pushes_is_told(monkeypatch):
    with cassq.connect("memory:") as store:
        for name, cron in (("reports", "* * * * * *"), ("others", "0 0 1 1 *")):
            store.queue(name).schedules.set("s", cron, b"x")
        (sound,) = doctor_pipes.examine(store)
        monkeypatch.setattr(doctor_pipes, "PATIENCE", timedelta(minutes=-1))

        (found,) = doctor_pipes.examine(store)

    assert sound.level is Level.OK
    assert found.level is Level.WARN
    assert found.told == "queue reports: 1 schedules whose messages nobody pushes"
    assert "cassq reap" in found.way_out


def test_messages_of_a_type_that_nobody_takes_are_told(monkeypatch):
    monkeypatch.setattr(doctor_pipes, "UNWANTED_AFTER", timedelta(0))
    with cassq.connect("memory:") as store:
        for kind in ("invoice", "refund", None):
            queue = store.queue("orders")
            queue.push_many([b"x"] * 2, type=kind)
            queue.close()
        with store.queue("orders").popper(types=["invoice"]) as popper:
            first = popper.pop(timeout=10)

            (found,) = doctor_pipes.examine(store)

            first.commit()
    assert found.level is Level.WARN
    assert found.told == "queue orders: 2 pipes of types (or of none) that no consumer takes"
    assert "--by type" in found.way_out


@pytest.mark.parametrize(
    ("library", "is_warned"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)
def test_a_file_is_warned_of_an_sqlite_whose_checkpoints_may_damage_it(tmp_path, library, is_warned):
    path = str(tmp_path / "store.db")
    cassq.connect(f"sqlite:///{path}").close()
    facts = replace(read_facts(path), library=library)

    found = doctor_sqlite._judge_library(facts)

    assert found.told.startswith(f"SQLite {'.'.join(map(str, library))}")
    assert (found.level, bool(found.way_out)) == ((Level.WARN, True) if is_warned else (Level.OK, False))


def test_a_store_in_memory_is_not_warned_of_the_library():
    assert [each.level for each in doctor_sqlite.examine(SqliteTarget(None))] == [Level.OK]
