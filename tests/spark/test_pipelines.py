"""The pipelines on real queues and real ledgers."""

import json
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from popping import pop_exactly
from pyspark.sql import functions as f

from cassq.errors import ConflictError, InvalidOptionError
from cassq.spark.pipeline import (
    archive,
    audit,
    find_archived,
    keep_rollup,
    lines_of_ledgers,
    lines_of_pushes,
    lines_of_snapshot,
    profile,
    read_archive,
    render,
    restore,
    rollup,
)
from cassq.spark.pipeline.files import Files
from cassq.verification.ledger import Kind, LedgerWriter, Line


def numbered(count, prefix="m"):
    return [f"{prefix}{number}".encode() for number in range(count)]


@pytest.fixture
def ended(store, name):
    """A queue with messages committed in sealed pipes, dead letters and some that wait."""
    queue = store.queue(name, pipe_messages_max=20, max_attempts=1)
    pushed = [(body, {"kind": "a" if place % 3 else "b"}) for place, body in enumerate(numbered(70))]
    queue.push_many(pushed[:30])
    with queue.popper() as popper:
        deliveries = pop_exactly(popper, 30)
        popper.commit_many(deliveries[:25])
        for delivery in deliveries[25:]:
            delivery.rollback()
        while len(queue.dead.peek(5)) < 5:  # a popper that looks for messages finds them, and buries them
            assert popper.pop(timeout=0.1) is None
    queue.push_many(pushed[30:])
    return queue


def bodies(frame):
    return Counter(bytes(row.body) for row in frame.select("body").collect())


class TestRollup:
    def test_figures_add_up_to_the_queues_own(self, ended, read):
        figures = rollup(read())
        stats = ended.stats()
        total = figures.agg(f.sum("waiting"), f.sum("pending"), f.sum("dead"), f.sum("returned")).first()
        assert total[0] + total[3] == stats.waiting
        assert total[1] == stats.pending
        assert total[2] == stats.dead

    def test_ages_and_sizes(self, queue, read):
        queue.push_many([b"x" * size for size in range(1, 101)])
        (row,) = (
            rollup(read())
            .groupBy("queue")
            .agg(f.sum("body_bytes").alias("all"), f.max("body_p99_bytes").alias("p99"))
            .collect()
        )
        assert row["all"] == 5050
        assert 95 <= row["p99"] <= 100
        (age,) = rollup(read()).agg(f.max("oldest_age_s"), f.min("age_p50_s")).collect()
        assert 0 <= age[1] <= age[0] < 3600

    def test_a_row_is_of_one_minute_pusher_and_holder(self, queue, read):
        queue.push_many(numbered(30))
        with queue.popper() as popper:
            pop_exactly(popper, 5)
            rows = rollup(read()).collect()
        keys = [(row.queue, row.shard, row.minute, row.pusher, row.holder) for row in rows]
        assert len(keys) == len(set(keys))
        assert any(row.pending and row.holder for row in rows)
        assert {row.shard for row in rows} == {0}
        assert all(row.minute.second == 0 and row.pusher for row in rows)


class TestKeptRollup:
    def test_the_store_has_the_same_figures(self, spark, ended, read, url):
        figures = rollup(read()).persist()
        rows = figures.collect()
        (moment,) = {row.rolled_up_at for row in rows}

        assert keep_rollup(figures, url) == keep_rollup(figures, url) == len(rows)

        kept = ended.rollups(moment.astimezone(UTC).date())
        assert len(kept) == len(rows)
        found = {(each.minute, each.pusher, each.holder): each for each in kept}
        for row in rows:
            one = found[row.minute.astimezone(UTC), row.pusher or "", row.holder or ""]
            for name in ("waiting", "pending", "returned", "committed", "dead", "body_bytes"):
                assert getattr(one, name) == row[name], name
            for share in ("p50", "p90", "p99"):
                assert getattr(one, f"body_{share}_bytes") == row[f"body_{share}_bytes"]
            for name in ("oldest_age", "age_p50", "age_p90", "age_p99"):
                seconds, kept_ms = row[f"{name}_s"], getattr(one, f"{name}_ms")
                assert (seconds is None) == (kept_ms is None)
                assert seconds is None or abs(1000 * seconds - kept_ms) <= 1
        assert sum(each.dead for each in kept) == ended.stats().dead >= 5

    def test_two_rollups_stand_side_by_side(self, queue, read, url):
        queue.push(b"one")
        days = {datetime.now(UTC).date()}
        for _ in range(2):
            assert keep_rollup(rollup(read()), url) == 1
        days.add(datetime.now(UTC).date())
        kept = [each for day in sorted(days) for each in queue.rollups(day)]
        assert len({each.rolled_up_at for each in kept}) == len(kept) == 2

    def test_a_queue_without_messages_has_no_row(self, queue, read, url):
        assert keep_rollup(rollup(read()), url) == 0
        assert queue.rollups(datetime.now(UTC).date()) == []

    def test_a_frame_without_the_figures_is_refused(self, queue, read, url):
        with pytest.raises(InvalidOptionError, match="'age_p50_s' is missing"):
            keep_rollup(rollup(read()).drop("age_p50_s"), url)
        with pytest.raises(InvalidOptionError, match="share no memory"):
            keep_rollup(rollup(read()), "memory:")
        with pytest.raises(InvalidOptionError, match="nonsense"):
            keep_rollup(rollup(read()), "nonsense://")

    def test_what_was_pushed_after_the_plan_is_no_age_old(self, queue, read, url):
        queue.push(b"one")
        later = read().withColumn("pushed_at", f.col("pushed_at") + f.expr("interval 1 hour"))
        figures = rollup(later).persist()
        assert figures.first().oldest_age_s == 0
        assert keep_rollup(figures, url) == 1


class TestArchive:
    def test_what_has_ended_is_archived_once(self, spark, store, ended, read, tmp_path):
        folder = str(tmp_path / "archive")
        before = read().where("(state = 'committed' and phase != 'open') or state = 'dead'").count()
        first = archive(read(), folder)
        assert 5 <= first.messages <= before
        again = archive(read(), folder)
        assert again.number == first.number + 1
        found = read_archive(spark, folder)
        ids = [row.message_id for row in found.select("message_id").collect()]
        assert len(ids) == len(set(ids)) == first.messages + again.messages
        assert bodies(found.where("state = 'dead'")) <= bodies(read().where("state = 'dead'"))

    def test_it_is_laid_out_by_date_and_queue(self, spark, ended, read, tmp_path, name):
        run = archive(read(), str(tmp_path / "archive"))
        today = datetime.now(UTC).date().isoformat()
        dates = list((tmp_path / "archive" / "messages" / run.name).glob("date=*"))
        assert dates
        assert max(date.name for date in dates) <= f"date={today}"
        assert all((date / f"queue={name}").is_dir() for date in dates)

    def test_a_run_that_was_killed_is_as_if_it_had_never_been(
        self, spark, ended, read, tmp_path, monkeypatch
    ):
        folder = tmp_path / "archive"

        class KilledError(Exception):
            pass

        def killed(self, *words):
            raise KilledError

        with monkeypatch.context() as patched:
            patched.setattr(Files, "create", killed)
            with pytest.raises(KilledError):
                archive(read(), str(folder))
        (left,) = [each.name for each in (folder / "messages").glob("run=*")]
        with pytest.raises(FileNotFoundError):
            read_archive(spark, str(folder))
        run = archive(read(), str(folder))
        assert read_archive(spark, str(folder)).count() == run.messages >= 5
        archive(read(), str(folder))
        assert not (folder / "messages" / left).exists()

    def test_of_two_runs_at_once_one_counts(self, spark, ended, read, tmp_path, monkeypatch):
        folder = str(tmp_path / "archive")
        create = Files.create

        def late(self, *words):
            monkeypatch.setattr(Files, "create", create)
            archive(read(), folder)  # another run comes to count just before this one
            return create(self, *words)

        monkeypatch.setattr(Files, "create", late)
        with pytest.raises(ConflictError, match="run again"):
            archive(read(), folder)
        ids = [row.message_id for row in read_archive(spark, folder).select("message_id").collect()]
        assert len(ids) == len(set(ids)) >= 5

    def test_a_queue_that_is_called_like_a_number_keeps_its_name(self, spark, store, url, tmp_path):
        queue = store.queue("007", max_attempts=1)
        queue.push(b"poison")
        with queue.popper() as popper:
            popper.pop(timeout=5).rollback()
            while not queue.dead.peek(1):
                popper.pop(timeout=0.05)
        frame = spark.read.format("cassq").option("url", url).option("queue", "007").load()
        assert archive(frame, str(tmp_path / "archive")).messages >= 1
        found = read_archive(spark, str(tmp_path / "archive"))
        assert {row.queue for row in found.collect()} == {"007"}
        assert find_archived(spark, str(tmp_path / "archive"), [found.first().message_id]).count() == 1
        store.delete_queue("007")

    def test_a_message_is_found_by_its_id(self, spark, ended, read, tmp_path):
        folder = str(tmp_path / "archive")
        archive(read(), folder)
        wanted = read_archive(spark, folder).first()
        (found,) = find_archived(spark, folder, [wanted.message_id]).collect()
        assert bytes(found.body) == bytes(wanted.body)
        assert find_archived(spark, folder, ["nobody:1"]).count() == 0

    def test_it_is_restored_into_a_queue(self, spark, store, ended, read, tmp_path, url, name):
        folder = str(tmp_path / "archive")
        archive(read(), folder)
        other = store.queue(f"{name}-restored")
        dead = read_archive(spark, folder).where("state = 'dead'")
        for _ in range(2):
            restore(dead, url, other.name, writer="restore", batch=1)
        assert Counter(message.body for message in other.peek(100)) == bodies(dead)
        assert other.stats().waiting == dead.count() >= 5

    def test_what_is_restored_has_the_priority_type_and_key_that_it_had(
        self, spark, store, read, tmp_path, url, name
    ):
        queue, folder = store.queue(name, max_attempts=1), str(tmp_path / "archive")
        queue.push(b"x", {"a": "b"}, priority=3, type="refund", key="customer 4")
        with queue.popper() as popper:
            popper.pop(timeout=60).reject("no such order")
        archive(read(), folder)
        other = store.queue(f"{name}-restored")
        restore(read_archive(spark, folder), url, other.name)
        other.record.read()
        (message,) = other.peek()
        told = message.body, message.headers, message.priority, message.type, message.key
        assert told == (b"x", {"a": "b"}, 3, "refund", "customer 4")

    def test_an_archive_of_nothing_says_so(self, spark, queue, read, tmp_path):
        assert archive(read(), str(tmp_path / "archive")).messages == 0
        with pytest.raises(FileNotFoundError):
            read_archive(spark, str(tmp_path / "archive"))


class TestAudit:
    COUNT = 3000

    @pytest.fixture
    def ledgers(self, tmp_path):
        """Ledgers with planted losses and duplicates; returns (path, lost, doubled)."""
        folder = tmp_path / "ledgers"
        folder.mkdir()
        names = [f"m{number}" for number in range(self.COUNT)]
        lost, doubled = names[17 : 17 + 7 * 100 : 100], names[50 : 50 + 5 * 300 : 300]
        pusher = LedgerWriter(folder / "pusher.jsonl", "pusher")
        pusher.append(Line(1.0, "pusher", Kind.ATTEMPTED, name, digest="d") for name in names)
        pusher.append(Line(2.0, "pusher", Kind.ACKNOWLEDGED, name, digest="d") for name in names)
        pusher.close()
        popper = LedgerWriter(folder / "popper.jsonl", "popper")
        for name in names:
            if name in lost:
                continue
            for attempt in (1, 2) if name in doubled else (1,):
                line = Line(3.0 + attempt, "popper", Kind.DELIVERED, name, attempt, until=40.0, digest="d")
                popper.append([line])
                for kind in (Kind.COMMITTING, Kind.COMMITTED):
                    popper.append([Line(3.5 + attempt, "popper", kind, name, attempt)])
        popper.close()
        return str(folder), set(lost), set(doubled)

    def test_it_finds_what_was_planted_and_nothing_else(self, spark, ledgers):
        path, lost, doubled = ledgers
        found = audit(lines_of_ledgers(spark, path)).collect()
        assert {row.message for row in found if row.finding == "lost"} == lost
        assert {row.message for row in found if row.finding == "duplicated"} == doubled
        assert {row.finding for row in found} == {"lost", "duplicated"}
        assert len(found) == 12

    def test_a_second_delivery_that_is_explained_is_none(self, spark, tmp_path):
        writer = LedgerWriter(tmp_path / "ledger", "popper")
        writer.append(
            [
                Line(1.0, "popper", Kind.ACKNOWLEDGED, "m"),
                Line(2.0, "popper", Kind.DELIVERED, "m", 1, until=40.0),
                Line(3.0, "popper", Kind.ROLLING_BACK, "m", 1),
                Line(4.0, "popper", Kind.DELIVERED, "m", 2, until=44.0),
                Line(5.0, "popper", Kind.COMMITTED, "m", 2),
            ]
        )
        writer.close()
        assert audit(lines_of_ledgers(spark, str(tmp_path / "ledger"))).collect() == []

    def test_files_of_ids_are_audited_too(self, spark, tmp_path):
        pushed = spark.range(1000).selectExpr("concat('m', id) AS message", "'d' AS digest")
        pushed.write.option("header", "true").csv(str(tmp_path / "pushed"))
        read = spark.read.option("header", "true").csv(str(tmp_path / "pushed"))
        consumed = pushed.where("message != 'm7'").unionByName(pushed.where("message = 'm8'"))
        consumed = consumed.withColumn(
            "digest", f.when(f.col("message") == "m9", "other").otherwise(f.col("digest"))
        )
        extra = spark.createDataFrame([("stranger", "d")], "message string, digest string")
        lines = lines_of_pushes(read).unionByName(lines_of_snapshot(consumed.unionByName(extra)))
        found = {(row.finding, row.message) for row in audit(lines).collect()}
        assert found == {("lost", "m7"), ("duplicated", "m8"), ("damaged", "m9"), ("unexpected", "stranger")}

    def test_a_frame_without_messages_is_named(self, spark):
        with pytest.raises(InvalidOptionError, match="'id'"):
            lines_of_pushes(spark.range(3))

    def test_a_line_that_a_kill_cut_short_is_left_out(self, spark, ledgers):
        path, lost, _ = ledgers
        with Path(path, "popper.jsonl").open("a") as file:
            file.write('[5.0, "popper", "deliv')
        found = audit(lines_of_ledgers(spark, path)).collect()
        assert {row.message for row in found if row.finding == "lost"} == lost

    def test_a_line_that_is_none_is_named(self, spark, tmp_path):
        (tmp_path / "ledger").write_text("rubbish\n")
        with pytest.raises(Exception, match="not a line of a ledger: rubbish"):
            audit(lines_of_ledgers(spark, str(tmp_path / "ledger"))).collect()


class TestProfile:
    def test_it_tells_who_has_what(self, ended, read):
        with ended.popper() as popper:
            taken = pop_exactly(popper, 3)
            messages = read().persist()  # of one moment: a pipe may retire between two reads
            count = messages.where("phase is not null").count()
        found = profile(messages, stuck_s=0.0)
        pushers = found.pushers.collect()
        holders = found.holders.collect()
        assert sum(row.share for row in pushers) == pytest.approx(1.0)
        assert sum(row.stuck for row in holders) >= len(taken)
        headers = {(row.name, row.value): row.messages for row in found.headers.collect()}
        assert set(headers) == {("kind", "a"), ("kind", "b")}
        assert sum(row.messages for row in found.pipes.collect()) == count
        messages.unpersist()

    def test_the_page_stands_alone(self, ended, read):
        page = render(profile(read()), "Profile of <all>")
        assert page.startswith("<!doctype html>")
        assert "&lt;all&gt;" in page
        assert page.count("<svg") >= 2
        assert not re.search(r'(?:src|href)="https?:', page)

    def test_an_empty_queue_has_a_page_too(self, queue, read):
        assert "none" in render(profile(read()), "empty")


#: Each command starts a Java of its own, and what it does is tested above on both stores.
on_a_file = pytest.mark.parametrize("url", ["file"], indirect=True)
on_a_cluster = pytest.mark.parametrize(
    "url", [pytest.param("cassandra", marks=pytest.mark.service)], indirect=True
)


class TestCommands:
    """`cassq pipeline`, as a program of its own."""

    def run(self, url, *words, command="pipeline"):
        line = [str(Path(sys.executable).with_name("cassq")), "--url", url, "--json", command, *words]
        return subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)

    @on_a_cluster
    def test_a_queue_is_rolled_up_into_files_and_into_the_store(self, spark, ended, url, name, tmp_path):
        out = str(tmp_path / "figures")
        done = self.run(url, "rollup", out, "--keep", "--queue", name, "--master", "local[1]")
        assert done.returncode == 0, done.stderr
        rows = spark.read.parquet(out).collect()
        assert json.loads(done.stdout) == {"out": out, "kept": len(rows)}
        (moment,) = {row.rolled_up_at for row in rows}
        day = moment.astimezone(UTC).date().isoformat()
        kept = json.loads(self.run(url, "rollups", name, "--day", day, command="queue").stdout)
        assert len(kept) == len(rows)
        assert {datetime.fromisoformat(each["minute"]) for each in kept} == {
            row.minute.astimezone(UTC) for row in rows
        }

    @on_a_file
    def test_a_rollup_without_a_place_is_refused(self, url):
        refused = self.run(url, "rollup", "--master", "local[1]")
        assert refused.returncode == InvalidOptionError.exit_code
        assert "--keep" in refused.stderr

    @on_a_file
    def test_a_queue_is_archived_audited_and_profiled(self, ended, url, name, tmp_path):
        archived = self.run(
            url, "archive", str(tmp_path / "archive"), "--queue", name, "--master", "local[1]"
        )
        assert archived.returncode == 0, archived.stderr
        assert json.loads(archived.stdout)["messages"] >= 5
        page = tmp_path / "page.html"
        profiled = self.run(url, "profile", str(page), "--queue", name, "--master", "local[1]")
        assert profiled.returncode == 0, profiled.stderr
        assert "<svg" in page.read_text("utf-8")

    @on_a_file
    def test_nothing_to_audit_is_said(self, url):
        ended = self.run(url, "audit", "--master", "local[1]")
        assert ended.returncode == InvalidOptionError.exit_code
        assert "nothing to audit" in ended.stderr
