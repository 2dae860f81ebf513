"""What the storage port says of figures of rollups, asked of every adapter."""

from contextlib import closing
from datetime import date, timedelta

import pytest
from spoilt import make_rollup

from cassq.model.message import to_datetime
from cassq.model.rollup import NAMES
from cassq.storage.sqlite.storage import SqliteStorage


class TestRollups:
    DAY = timedelta(days=1) // timedelta(milliseconds=1)

    @pytest.fixture
    def noon_ms(self, storage, queue):
        """Noon of the database's day."""
        return storage.list_pipes(queue).now_ms // self.DAY * self.DAY + self.DAY // 2

    def read(self, storage, queue, ms):
        return list(storage.read_rollups(queue, to_datetime(ms).date()))

    def test_they_read_back_in_the_order_of_their_keys(self, storage, queue, noon_ms):
        wanted = [
            make_rollup(noon_ms + at, minute_ms, pusher=pusher, holder=holder)
            for at in (0, 7)
            for minute_ms in (60_000, 120_000)
            for pusher in ("", "p")
            for holder in ("", "h")
        ]

        storage.write_rollups(queue, wanted[::-1])

        assert self.read(storage, queue, noon_ms) == wanted

    def test_every_figure_keeps_its_place(self, storage, queue, noon_ms):
        figures = {name: 100 + place for place, name in enumerate(NAMES[4:])}

        storage.write_rollups(queue, [make_rollup(noon_ms, **figures)])

        assert self.read(storage, queue, noon_ms) == [make_rollup(noon_ms, **figures)]

    def test_a_day_has_what_was_rolled_up_from_midnight_to_midnight(self, storage, queue, noon_ms):
        midnight_ms = noon_ms + self.DAY // 2
        moments = [noon_ms - self.DAY // 2 - 1, noon_ms - self.DAY // 2, midnight_ms - 1, midnight_ms]

        storage.write_rollups(queue, [make_rollup(moment) for moment in moments])

        found = [each.rolled_up_at_ms for each in self.read(storage, queue, noon_ms)]
        assert found == moments[1:3]

    def test_of_two_under_one_key_the_later_one_stands(self, storage, queue, noon_ms):
        ended = {"waiting": 0, "pending": 0, "returned": 0, "committed": 9}
        ages = dict.fromkeys(("oldest_age_ms", "age_p50_ms", "age_p90_ms", "age_p99_ms"))
        storage.write_rollups(queue, [make_rollup(noon_ms)])

        for _ in range(2):
            storage.write_rollups(queue, [make_rollup(noon_ms, **ended, **ages)])

        assert self.read(storage, queue, noon_ms) == [make_rollup(noon_ms, **ended, **ages)]

    def test_a_queue_without_any_has_none(self, storage, queue, noon_ms):
        storage.write_rollups(queue, [])

        assert self.read(storage, queue, noon_ms) == []

    def test_the_last_day_there_is_may_be_asked_for(self, storage, queue):
        assert list(storage.read_rollups(queue, date.max)) == []


def test_a_file_forgets_rollups_that_are_older_than_thirty_days(tmp_path):
    with closing(SqliteStorage(str(tmp_path / "store.db"))) as storage:
        now_ms = storage.list_pipes("q").now_ms
        moments = {age: now_ms - age * TestRollups.DAY for age in (31, 29, 0)}
        for age, queue in ((31, "gone"), (31, "q"), (29, "q")):
            storage.write_rollups(queue, [make_rollup(moments[age])])

        storage.write_rollups("q", [make_rollup(moments[0])])

        kept = [
            (queue, age)
            for queue in ("gone", "q")
            for age, at_ms in moments.items()
            if storage.read_rollups(queue, to_datetime(at_ms).date())
        ]
        assert kept == [("q", 29), ("q", 0)]
