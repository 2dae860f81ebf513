"""What requests of a process share: what is open, who is known, what is held, and how errors are told."""

import asyncio
import inspect
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from cassq import errors
from cassq.errors import (
    ClosedError,
    OverloadedError,
    QueueNotFoundError,
    StorageUnavailableError,
    UnavailableError,
)
from cassq.gate.addresses import Proxies
from cassq.gate.gate import KNOWN_S, LOOK_S
from cassq.http import service as services
from cassq.http.bodies import Budget
from cassq.http.problems import PartlyDoneError, answer_problem, to_problem
from cassq.http.service import InUse, Service

WAIT_S = 30.0


class Opened:
    """What may be closed."""

    def __init__(self, name):
        self.name = name
        self.is_closed = self.is_busy = False

    async def close_idle(self, idle_s):
        assert idle_s == services.IDLE_S

    async def close(self):
        self.is_closed = True


class Opener:
    """Opens, and counts how often."""

    def __init__(self):
        self.made = []

    async def find(self, name):
        await asyncio.sleep(0)
        self.made.append(Opened(name))
        return self.made[-1]


class TestInUse:
    def test_requests_at_the_same_time_have_the_same_one(self):
        opener = Opener()

        async def run():
            in_use = InUse(opener.find)

            async def use():
                async with in_use.get("a") as found:
                    await asyncio.sleep(0)
                    return found

            return await asyncio.gather(*[use() for _ in range(5)])

        assert len(set(asyncio.run(run()))) == 1
        assert len(opener.made) == 1

    def test_one_that_is_cancelled_takes_nothing_from_the_others(self):
        opener = Opener()

        async def run():
            in_use = InUse(opener.find)

            async def use():
                async with in_use.get("a") as found:
                    return found

            first, *others = [asyncio.create_task(use()) for _ in range(3)]
            await asyncio.sleep(0)
            first.cancel()
            return await asyncio.gather(*others)

        assert asyncio.run(run()) == opener.made * 2

    def test_all_hear_that_there_is_none_and_the_next_one_looks_again(self):
        looks = []

        async def find(name):
            looks.append(name)
            await asyncio.sleep(0)
            raise QueueNotFoundError("none")

        async def run():
            in_use = InUse(find)

            async def use():
                with pytest.raises(QueueNotFoundError):
                    async with in_use.get("a"):
                        pass

            await asyncio.gather(use(), use())
            await use()

        asyncio.run(run())
        assert looks == ["a", "a"]

    def test_what_is_forgotten_while_it_opens_is_opened_anew(self):
        opener = Opener()

        async def run():
            in_use = InUse(opener.find)

            async def use():
                async with in_use.get("a"):
                    pass

            first = asyncio.create_task(use())
            await asyncio.sleep(0)
            in_use.forget("a")
            await asyncio.gather(first, use())

        asyncio.run(run())
        assert len(opener.made) == 2

    def test_what_is_in_use_is_not_closed_and_what_is_idle_is(self, monkeypatch):
        monkeypatch.setattr(services, "IDLE_S", 0.0)
        opener = Opener()

        async def run():
            in_use = InUse(opener.find)
            async with in_use.get("a") as found:
                await in_use.close_idle()
                assert not found.is_closed
            await in_use.close_idle()
            assert found.is_closed
            async with in_use.get("a") as again:
                assert again is not found

        asyncio.run(run())

    def test_what_clients_have_something_of_stays_open(self, monkeypatch):
        monkeypatch.setattr(services, "IDLE_S", 0.0)
        opener = Opener()

        async def run():
            in_use = InUse(opener.find)
            async with in_use.get("a") as found:
                found.is_busy = True
            await in_use.close_idle()
            assert not found.is_closed
            found.is_busy = False
            await in_use.close_idle()
            assert found.is_closed

        asyncio.run(run())

    def test_what_was_used_lately_stays_open(self):
        opener = Opener()

        async def run():
            in_use = InUse(opener.find)
            async with in_use.get("a") as found:
                pass
            await in_use.close_idle()
            assert not found.is_closed

        asyncio.run(run())

    def test_what_is_being_opened_is_not_closed_as_idle_meanwhile(self, monkeypatch):
        monkeypatch.setattr(services, "IDLE_S", 0.0)
        shared, may_find, is_asked = Opened("a"), asyncio.Event(), asyncio.Event()

        async def find(name):
            if not is_asked.is_set():
                is_asked.set()
                await may_find.wait()
            return shared

        async def run():
            in_use = InUse(find)
            slow = asyncio.create_task(_hold(in_use))
            await is_asked.wait()
            in_use.forget("a")  # so that the next one opens it anew
            await _hold(in_use)  # opened faster, and idle since
            await in_use.close_idle()
            assert not shared.is_closed
            may_find.set()
            await slow
            await in_use.close_idle()
            assert shared.is_closed

        asyncio.run(run())

    def test_what_is_being_closed_is_opened_once_that_is_over(self, monkeypatch):
        monkeypatch.setattr(services, "IDLE_S", 0.0)
        opener, may_close = Opener(), asyncio.Event()

        async def run():
            in_use = InUse(opener.find)
            async with in_use.get("a") as first:
                pass
            first.close = may_close.wait
            closing = asyncio.create_task(in_use.close_idle())
            await asyncio.sleep(0)
            opening = asyncio.create_task(_hold(in_use))
            for _ in range(10):  # turns of the loop, of which an opening takes two
                await asyncio.sleep(0)
            assert len(opener.made) == 1
            may_close.set()
            await asyncio.gather(closing, opening)
            assert len(opener.made) == 2

        asyncio.run(run())

    @pytest.mark.parametrize(
        ("error", "told"),
        [(QueueNotFoundError("gone"), QueueNotFoundError), (ClosedError("x"), UnavailableError)],
    )
    def test_what_is_gone_is_opened_anew_by_the_next_request(self, error, told):
        opener = Opener()

        async def run():
            in_use = InUse(opener.find)
            with pytest.raises(told):
                async with in_use.get("a"):
                    raise error
            async with in_use.get("a"):
                pass

        asyncio.run(run())
        assert len(opener.made) == 2


async def _hold(in_use):
    async with in_use.get("a") as found:
        assert not found.is_closed


class Gate:
    """A gate whose knowledge is as old as a test says, and gets fresh by a look.

    Attributes:
        looks: how many there were.
    """

    def __init__(self, age_s, *, error=None, is_slow=False):
        self.age_s = age_s
        self.looks = 0
        self._error = error
        self._is_slow = is_slow

    def look(self):
        self.looks += 1
        if self._error:
            raise self._error
        if not self._is_slow:
            self.age_s = 0.0

    def admit(self, asked, *, is_counted=True):
        return asked, is_counted


class Store:
    """As much of a store as is named before anything is opened."""

    find_queue = find_topic = None


def admitted(gate, count=1):
    async def run():
        service = Service(Store(), gate, Proxies())
        return await asyncio.gather(*[service.admit("asked") for _ in range(count)])

    return asyncio.run(run())


class TestKnowledge:
    def test_what_is_fresh_is_not_read_again(self):
        gate = Gate(LOOK_S / 2)
        assert admitted(gate) == [("asked", True)]
        assert gate.looks == 0

    def test_what_is_too_old_is_read_once_for_all_who_wait(self):
        gate = Gate(KNOWN_S)
        assert len(admitted(gate, 50)) == 50
        assert gate.looks == 1

    def test_what_is_getting_old_is_read_while_requests_go_on(self):
        gate = Gate(LOOK_S, is_slow=True)
        assert len(admitted(gate, 50)) == 50
        assert gate.looks <= 1

    def test_nobody_is_let_in_where_it_cannot_be_read(self):
        with pytest.raises(StorageUnavailableError, match="away"):
            admitted(Gate(KNOWN_S, error=StorageUnavailableError("away")))

    def test_nobody_is_let_in_where_a_look_takes_too_long(self, monkeypatch):
        gate = Gate(KNOWN_S)
        gate.look = lambda: time.sleep(1)
        monkeypatch.setattr(services, "PATIENCE_S", 0.1)
        with pytest.raises(StorageUnavailableError, match="nobody is let in"):
            admitted(gate)

    def test_a_look_that_ended_in_this_turn_of_the_loop_does_not_hold_it_up(self):
        async def run():
            gate = Gate(KNOWN_S)
            service = Service(Store(), gate, Proxies())
            # It was slow, so that what it found is too old, and nothing that waits for it was called yet.
            service._looking = asyncio.create_task(asyncio.sleep(0))
            await service._looking
            await service.know(KNOWN_S)
            return gate.looks

        assert run_apart(run) == 1

    def test_a_gate_that_stays_too_old_is_not_read_for_ever(self):
        gate = Gate(KNOWN_S, is_slow=True)
        with pytest.raises(StorageUnavailableError, match="nobody is let in"):
            admitted(gate)
        assert gate.looks == services.LOOKS

    def test_who_is_known_is_read_while_all_other_threads_are_held(self):
        async def run():
            held = threading.Event()
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(1))
            waiting = loop.run_in_executor(None, held.wait, WAIT_S)
            try:
                await asyncio.wait_for(Service(Store(), Gate(KNOWN_S), Proxies()).know(KNOWN_S), 5)
            finally:
                held.set()
                await waiting

        asyncio.run(run())


def run_apart(run):
    """Run in a thread of its own: a loop that never turns again could not be ended."""
    ended = queue.SimpleQueue()
    threading.Thread(target=lambda: ended.put(asyncio.run(run())), daemon=True).start()
    return ended.get(timeout=WAIT_S)


def test_no_more_is_held_than_a_process_may_and_what_was_is_given_back():
    budget = Budget(100)
    with budget.share("a") as first, budget.share("b") as second, budget.share("c") as third:
        first.resize(40)
        second.resize(50)
        with pytest.raises(OverloadedError, match="clients"):
            third.resize(11)
        first.resize(10)
        third.resize(40)
    with budget.share("a") as again, budget.share("b") as other:
        again.resize(50)
        other.resize(50)


def test_one_application_does_not_hold_what_others_need():
    budget = Budget(100)
    with budget.share("a") as first, budget.share("a") as second, budget.share("b") as other:
        first.resize(30)
        with pytest.raises(OverloadedError, match="this application"):
            second.resize(21)
        second.resize(20)
        other.resize(50)


TREE = [
    each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.CassqError)
]


HIDDEN = {
    *(errors.QueueNotFoundError, errors.TopicNotFoundError, errors.ClosedError, errors.OutcomeUnknownError),
    *(errors.UnavailableError, errors.StorageUnavailableError, errors.CoordinationUnavailableError),
    *(errors.GroupNotFoundError, errors.PartitionLostError),
}


def made(kind):
    if kind is errors.OffsetGoneError:
        return kind("secret", 0, 1, 2)
    return kind("secret", 0.2) if kind is errors.RateExceededError else kind("secret")


@pytest.mark.parametrize("kind", TREE, ids=lambda each: each.__name__)
def test_each_error_of_the_tree_is_a_problem_with_its_code_and_status(kind):
    answer = answer_problem(made(kind))
    told = msgspec.json.decode(answer.body)

    assert (told["code"], told["status"], answer.status_code) == (
        kind.code,
        kind.http_status,
        kind.http_status,
    )
    assert answer.media_type == "application/problem+json"
    # What is stored, and what others have, is told to nobody.
    hidden = kind.http_status == 500 or kind in HIDDEN
    assert ("secret" in told["detail"]) is not hidden
    assert ("Retry-After" in answer.headers) is (kind.http_status in {429, 503})


def test_a_fault_of_the_service_is_logged_and_not_told(caplog):
    answer = answer_problem(ZeroDivisionError("secret"))

    assert answer.status_code == 500
    assert b"secret" not in answer.body
    assert "secret" in caplog.text


@pytest.mark.parametrize("kind", [StorageUnavailableError, errors.OutcomeUnknownError])
def test_what_is_not_told_of_the_database_is_logged(caplog, kind):
    answer_problem(kind("10.0.0.1:9042 refused"))
    assert "10.0.0.1:9042 refused" in caplog.text


def test_who_is_told_what_is_durable_is_not_told_to_send_it_all_again():
    answer = answer_problem(PartlyDoneError(OverloadedError("full"), 7))
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, False)


def test_what_is_durable_of_many_is_told_with_why_the_others_are_not():
    told = to_problem(PartlyDoneError(OverloadedError("full"), 7))
    assert (told.code, told.status, told.done) == ("overloaded", 503, 7)
