"""Many messages in one request: what is told where something goes wrong, and what is held meanwhile."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from support.patience import until

from cassq.errors import InvalidOptionError, OutcomeUnknownError, OverloadedError
from cassq.http import bodies, messages, service
from cassq.http.app import THREADS
from cassq.http.bodies import PART_LINES, Budget
from cassq.http.messages import _send_all
from cassq.http.problems import PartlyDoneError, to_problem

PART = b'{"body": "a"}\n' * PART_LINES
WAIT_S = 30.0


class Request:
    """A request whose body comes in chunks; before one that is an event it waits for that."""

    def __init__(self, chunks):
        self.headers = {}
        self._chunks = chunks

    async def stream(self):
        for chunk in self._chunks:
            if isinstance(chunk, bytes):
                yield chunk
                await asyncio.sleep(0)
            else:
                await asyncio.get_running_loop().run_in_executor(None, chunk.wait, WAIT_S)


def call_of(*chunks, budget=None):
    budget = budget or Budget()
    shared = SimpleNamespace(parts=asyncio.Semaphore(service.PARTS_MAX), budget=budget)
    return SimpleNamespace(request=Request(chunks), service=shared, share=lambda: budget.share("shop"))


def told(send, *chunks):
    """Return what a client is told."""

    async def run():
        with pytest.raises(Exception) as raised:
            await _send_all(call_of(*chunks), send)
        return to_problem(raised.value)

    return asyncio.run(run())


def sends(*ends):
    """Return what sends parts: each ends as it is said, after it noted so many, or is durable."""
    left = list(ends)

    def send(part, note):
        count, error = left.pop(0)
        note(count)
        if error:
            raise error

    return send


DONE = (PART_LINES, None)
MAYBE = OutcomeUnknownError("maybe")


class TestWhatIsTold:
    def test_a_bad_line_does_not_hide_that_it_is_unknown_how_the_part_before_it_ended(self):
        problem = told(sends((7, MAYBE)), PART, b"bad\n")
        assert (problem.code, problem.done) == ("outcome-unknown", 7)

    def test_a_bad_line_does_not_hide_that_the_part_before_it_failed(self):
        assert told(sends((0, OverloadedError("full"))), PART, b"bad\n").code == "overloaded"

    def test_a_bad_line_behind_a_part_that_is_durable_is_told_with_it(self):
        problem = told(sends(DONE), PART, b"bad\n")
        assert (problem.code, problem.done) == ("invalid-option", PART_LINES)

    def test_a_fault_of_the_service_does_not_hide_what_is_durable(self):
        problem = told(sends(DONE, (3, ZeroDivisionError("a bug"))), PART, PART)
        assert (problem.code, problem.status, problem.done) == ("internal", 500, PART_LINES + 3)

    def test_a_fault_in_the_first_part_is_told_with_what_landed_of_it(self):
        problem = told(sends((3, ZeroDivisionError("a bug"))), PART)
        assert (problem.code, problem.done) == ("internal", 3)

    def test_where_nothing_is_durable_nothing_is_said_of_it(self):
        async def run():
            with pytest.raises(InvalidOptionError):
                await _send_all(call_of(b"bad\n"), sends())

        asyncio.run(run())

    @pytest.mark.parametrize("is_reading", [False, True], ids=["the part", "more lines"])
    def test_who_is_cut_off_is_told_what_is_durable_and_that_the_rest_may_be(self, is_reading):
        async def run():
            noted, ended = threading.Event(), threading.Event()

            def send(_part, note):
                note(7)
                noted.set()
                ended.wait(WAIT_S)

            rest = [ended] if is_reading else []
            sending = asyncio.create_task(_send_all(call_of(PART, *rest), send))
            await asyncio.get_running_loop().run_in_executor(None, noted.wait, WAIT_S)
            sending.cancel()
            try:
                with pytest.raises(PartlyDoneError) as raised:
                    await sending
            finally:
                ended.set()
            return to_problem(raised.value)

        problem = asyncio.run(run())
        assert (problem.status, problem.code, problem.done) == (504, "outcome-unknown", 7)


class TestWhatIsHeld:
    def test_a_part_that_is_on_its_way_counts_until_it_is_durable(self):
        async def run():
            budget, sent, ended = Budget(100_000), threading.Event(), threading.Event()

            def send(_part, _note):
                sent.set()
                ended.wait(WAIT_S)

            more = threading.Event()
            sending = asyncio.create_task(_send_all(call_of(PART, more, b"\n", budget=budget), send))
            wait = asyncio.get_running_loop().run_in_executor
            await wait(None, sent.wait, WAIT_S)
            held_while_it_flies = budget._held["shop"]
            ended.set()
            await wait(None, until, lambda: budget._held["shop"] < len(PART) - PART_LINES)
            more.set()
            await sending
            return held_while_it_flies, budget._held["shop"]

        flying, left = asyncio.run(run())
        assert flying >= len(PART) - PART_LINES
        assert left == 0

    def test_parts_of_others_are_waited_for_so_long(self, monkeypatch):
        monkeypatch.setattr(messages, "TIMEOUT_S", 0.01)

        async def run():
            call = call_of(PART)
            call.service.parts = asyncio.Semaphore(0)
            with pytest.raises(OverloadedError, match="in the way"):
                await _send_all(call, sends())

        asyncio.run(run())

    def test_parts_of_all_requests_leave_threads_for_other_calls(self):
        async def run():
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
            shared = asyncio.Semaphore(service.PARTS_MAX)
            ended, flying, most = threading.Event(), [], []

            def send(_part, _note):
                flying.append(1)
                most.append(len(flying))
                ended.wait(WAIT_S)
                flying.pop()

            calls = [call_of(PART) for _ in range(3 * service.PARTS_MAX)]
            for each in calls:
                each.service.parts = shared
            sending = [asyncio.create_task(_send_all(each, send)) for each in calls]
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, until, lambda: len(flying) == service.PARTS_MAX)
            ended.set()
            await asyncio.gather(*sending)
            return max(most)

        assert asyncio.run(run()) == service.PARTS_MAX


def test_the_body_of_a_line_is_at_most_so_long():
    async def run():
        with pytest.raises(Exception, match="a line may have"):
            await _send_all(call_of(b"x" * (bodies.LINE_MAX + 1)), sends())

    asyncio.run(run())
