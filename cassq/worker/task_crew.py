"""The tasks that call a coroutine function for one message after the other, on an event loop of their own.

Owns the loop and its thread. What must not break: a task whose handler was cancelled goes on with the next
message, and the end of a message waits for no thread that handlers keep busy.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cassq.aio.popper import Delivery as AioDelivery
from cassq.aio.popper import Popper as AioPopper
from cassq.errors import CassqError
from cassq.popping.popper import Popper
from cassq.worker.crews import Duty, end, judge, log_trouble
from cassq.worker.outcomes import Ending, failure_of
from cassq.worker.watchdog import Watchdog

#: So many messages at a time are rolled back or rejected by one crew.
ENDS_MAX = 4


class TaskCrew:
    """Tasks that call a coroutine function; see `cassq.worker.crews.ThreadCrew`."""

    def __init__(
        self, popper: Popper, duty: Duty, watchdog: Watchdog, on_end: Callable[[BaseException | None], None]
    ) -> None:
        self._popper = AioPopper(popper, is_grouped=duty.commit == "grouped")
        self._duty = duty
        self._watchdog = watchdog
        self._on_end = on_end
        self._left = duty.concurrency
        self._ends = ThreadPoolExecutor(ENDS_MAX, f"cassq-end-{popper.queue}")

    def start(self) -> int:
        """Start; return how many ends there will be."""
        threading.Thread(target=self._run, name=f"cassq-work-{self._popper.queue}", daemon=True).start()
        return self._left

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._work_all())
        except BaseException as raised:
            error = raised
        self._ends.shutdown(wait=False)
        for _ in range(self._left):  # the loop was stopped under them
            self._on_end(error)

    async def _work_all(self) -> None:
        await asyncio.gather(*(self._work() for _ in range(self._duty.concurrency)))

    async def _work(self) -> None:
        error: BaseException | None = None
        try:
            async for delivery in self._popper:
                await self._serve(delivery)
        except asyncio.CancelledError:
            raise  # with the loop: that has a reason of its own
        except BaseException as raised:
            error = raised
        self._left -= 1
        self._on_end(error)

    async def _serve(self, delivery: AioDelivery) -> None:
        loop = asyncio.get_running_loop()
        span = delivery.sync.begin_work()  # which the task inherits
        task = asyncio.create_task(self._call(delivery))

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)

        with self._watchdog.holding(delivery.sync, self._duty.timeout_s, cancel):
            await asyncio.wait((task,))
            error = asyncio.CancelledError() if task.cancelled() else task.result()
            trouble = await self._end(delivery, judge(delivery.sync, error))
            if span:
                span.end(failure_of(error) or trouble)

    async def _end(self, delivery: AioDelivery, how: Ending | None) -> CassqError | None:
        if not how:
            return None
        if how.verb != "commit":
            return await asyncio.get_running_loop().run_in_executor(self._ends, end, delivery.sync, how)
        try:
            await delivery.commit()
        except CassqError as trouble:
            log_trouble(delivery.sync, trouble)
            return trouble
        return None

    async def _call(self, delivery: AioDelivery) -> BaseException | None:
        """Call the handler; return what it raised: a SystemExit would end the loop."""
        try:
            with self._duty.around(delivery.sync):
                result = self._duty.handler(delivery)
                if inspect.isawaitable(result):
                    await result
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return error
        return None
