"""What is told where messages are published, and something goes wrong on the way."""

import asyncio
import subprocess
import sys

import pytest

from cassq import aio
from cassq.errors import OutcomeUnknownError, StorageUnavailableError
from cassq.http.problems import PartlyDoneError
from cassq.http.queuey_posting import Posted, publish


@pytest.fixture
def run(tmp_path):
    """Publish one message and two, into a topic that fails as told; return what was told, and stored."""

    def start(fail):
        return asyncio.run(post(tmp_path, fail))

    return start


async def post(folder, fail):
    async with aio.connect(f"sqlite:///{folder}/store.db") as store:
        topic = await store.topic("shop.a", partitions=2)
        fail(topic)
        posted = [Posted(b"1", 1), Posted(b"2", 2), Posted(b"3", 2)]
        try:
            told = await publish(topic, posted)
        except Exception as error:
            told = error
        stored = [[each.body for each in topic.sync.read(number).messages] for number in range(2)]
        return told, stored


def broken(error):
    async def call(*_, **__):
        raise error

    return call


def test_ids_come_in_the_order_of_the_messages(run):
    told, stored = run(lambda _: None)
    assert [each["partition"] for each in told] == [1, 2, 2]
    assert len({each["key"] for each in told}) == 3
    assert stored == [[b"1"], [b"2", b"3"]]


def test_where_the_first_partition_fails_nothing_is_published(run):
    told, stored = run(lambda topic: setattr(topic, "publish", broken(StorageUnavailableError("no"))))
    assert isinstance(told, StorageUnavailableError)
    assert stored == [[], []]


def test_where_a_later_partition_fails_it_is_told_how_many_are_published(run):
    told, stored = run(lambda topic: setattr(topic, "publish_many", broken(StorageUnavailableError("no"))))
    assert isinstance(told, PartlyDoneError)
    assert (told.done, type(told.cause)) == (1, StorageUnavailableError)
    assert stored == [[b"1"], []]


def test_where_the_ids_cannot_be_read_it_is_told_that_all_are_published(run):
    told, stored = run(lambda topic: setattr(topic, "read", broken(StorageUnavailableError("no"))))
    assert isinstance(told, PartlyDoneError)
    assert (told.done, type(told.cause)) == (3, OutcomeUnknownError)
    assert stored == [[b"1"], [b"2", b"3"]]


def test_nothing_of_queuey_is_imported_before_somebody_wants_it():
    text = (
        "import sys; from cassq.http.app import Opening, make_app; make_app(Opening('sqlite:///x.db'));"
        "assert not [name for name in sys.modules if 'queuey' in name];"
        "make_app(Opening('sqlite:///x.db', is_queuey=True)); assert 'cassq.http.queuey' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
