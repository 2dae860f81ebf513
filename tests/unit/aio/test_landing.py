"""How the ends of calls come to an event loop."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from cassq.aio.landing import landed


def count_wakes(loop):
    """Have a loop tell how often other threads woke it."""
    wakes, wake = [], loop.call_soon_threadsafe
    loop.call_soon_threadsafe = lambda *args: (wakes.append(args), wake(*args))
    return wakes


def test_what_ended_before_the_loop_looks_wakes_it_once():
    async def work():
        wakes = count_wakes(asyncio.get_running_loop())
        futures = [Future() for _ in range(10)]
        waiting = [landed(each) for each in futures]
        for number, each in enumerate(futures):
            each.set_result(number)
        assert await asyncio.gather(*waiting) == list(range(10))
        assert len(wakes) == 1
        later = Future()
        ended = landed(later)
        later.set_result("later")
        assert await ended == "later"
        assert len(wakes) == 2

    asyncio.run(work())


def test_each_end_comes_as_it_is():
    async def work():
        failed, cancelled, done = Future(), Future(), Future()
        done.set_result("done")
        ends = [landed(each) for each in (failed, cancelled, done)]
        failed.set_exception(ValueError("planted"))
        assert cancelled.cancel()
        with pytest.raises(ValueError, match="planted"):
            await ends[0]
        with pytest.raises(asyncio.CancelledError):
            await ends[1]
        assert await ends[2] == "done"

    asyncio.run(work())


def test_what_nobody_awaits_any_more_goes_on_and_comes_to_nothing():
    async def work():
        kept, given_up = Future(), Future()
        waiting = landed(kept), landed(given_up)
        waiting[1].cancel()
        assert not given_up.cancelled()
        for each in (given_up, kept):
            each.set_result("result")
        assert await waiting[0] == "result"
        assert waiting[1].cancelled()

    asyncio.run(work())


def test_what_ends_after_its_loop_was_closed_ends_all_the_same(caplog):
    future = Future()

    async def work():
        landed(future)

    asyncio.run(work())
    future.set_result("late")
    assert future.result() == "late"
    assert not caplog.records


def test_ends_of_many_threads_all_come_to_each_of_two_loops():
    def run(futures, found):
        async def work():
            found.extend(await asyncio.gather(*map(landed, futures)))

        asyncio.run(work())

    all_of = [[Future() for _ in range(2000)] for _ in range(2)]
    found = [[], []]
    loops = [threading.Thread(target=run, args=each) for each in zip(all_of, found, strict=True)]

    def end(place):
        for futures in all_of:
            for number in range(place, len(futures), 4):
                futures[number].set_result(number)

    enders = [threading.Thread(target=end, args=(place,)) for place in range(4)]
    for thread in (*loops, *enders):
        thread.start()
    for thread in (*loops, *enders):
        thread.join(60)
    assert found == [list(range(2000))] * 2


class Torn(Future):
    """A future of which the first look is torn away by Ctrl-C."""

    is_torn = False

    def exception(self, timeout=None):
        if not self.is_torn:
            self.is_torn = True
            raise KeyboardInterrupt
        return super().exception(timeout)


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


async def ended():
    """Wait for what has ended already."""
    future = Future()
    future.set_result("result")
    return await asyncio.wait_for(landed(future), 60)


def test_an_end_that_ctrl_c_tears_comes_all_the_same(loop):
    async def begin(futures):
        return [landed(each) for each in futures]

    torn, other = Torn(), Future()
    waiting = loop.run_until_complete(begin([torn, other]))
    for each in (torn, other):
        each.set_result("result")
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(waiting[1])
    assert loop.run_until_complete(asyncio.wait_for(waiting[1], 60)) == "result"
    assert loop.run_until_complete(waiting[0]) == "result"


def test_a_loop_that_ctrl_c_kept_from_being_told_is_told_next_time(loop):
    wake = loop.call_soon_threadsafe

    def tear(*_):
        loop.call_soon_threadsafe = wake
        raise KeyboardInterrupt

    loop.call_soon_threadsafe = tear
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(ended())
    assert loop.run_until_complete(ended()) == "result"
