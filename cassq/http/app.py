"""The ASGI application of one process.

Owns the order of beginning and ending: the store is open before the first request, and closes after the last.
"""

import asyncio
import logging
import multiprocessing
import signal
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from cassq import aio
from cassq.gate.addresses import Proxies
from cassq.gate.applications import Application, Applications, Right
from cassq.gate.gate import Admitted, Asked, Gate
from cassq.http import access
from cassq.http.openapi import make_document
from cassq.http.problems import RefusedError
from cassq.http.routes import PLAIN, Call, Door, Manner, Route, answer
from cassq.http.service import AnyGate, Service
from cassq.http.table import ROUTES
from cassq.logs import JsonFormatter
from cassq.runtime.clock import SystemClock

if TYPE_CHECKING:
    from cassq.metrics.service import ServiceMetrics

#: Calls of the library that wait have so many threads at most.
THREADS = 32

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

#: How often a process looks whether the one is there that started it.
PARENT_S = 1.0


class OpenGate:
    """Lets everybody in, as an operator: for a machine of one's own."""

    age_s = 0.0
    _everybody = Admitted(Application("open", frozenset(Right)), "-")

    def look(self) -> None:
        """Read nothing."""

    def admit(self, asked: Asked, *, is_counted: bool = True) -> Admitted:
        """Return who asks."""
        del asked, is_counted
        return self._everybody


@dataclass(frozen=True, slots=True)
class Opening:
    """What a process opens.

    Attributes:
        is_open: everybody is let in.
        is_insecure: keys may come over connections that others can read.
        is_told: all is logged, each request, too.
        is_queuey: clients of Queuey are answered, too.
        has_access_log: each request is logged.
        log_format: text, or json.
        has_metrics: what is noted for Prometheus; the folder is named.
        grace_before_s: so long it listens after the signal to end, and says that it is not ready.
    """

    url: str
    proxies: tuple[str, ...] = ()
    is_open: bool = False
    is_insecure: bool = False
    is_told: bool = False
    is_queuey: bool = False
    has_access_log: bool = False
    log_format: str = "text"
    has_metrics: bool = False
    grace_before_s: float = 0.0


def make_app(opening: Opening) -> Router:
    """Return the application of a process that opens the store by itself."""

    @asynccontextmanager
    async def live(_: Any) -> AsyncIterator[Mapping[str, Any]]:  # noqa: ANN401 - the application
        _begin_log(opening)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, "cassq-http"))
        metrics = _metrics_of(opening)
        async with aio.connect(opening.url, observer=metrics.observer if metrics else None) as store:
            gate, proxies = _gate_of(opening, store), Proxies.of(opening.proxies)
            service = Service(store, gate, proxies, is_open=opening.is_open, metrics=metrics)
            _leave_before(service, opening.grace_before_s)
            tasks = [asyncio.create_task(service.tend()), asyncio.create_task(_follow_parent())]
            try:
                yield {"service": service}
            finally:
                service.drain()
                service.close()
                for task in tasks:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

    doors: dict[str, Door] = {}
    manners: dict[str, Manner] = {}
    _add(doors, [*ROUTES, _document_route()], PLAIN)
    if opening.is_queuey:
        from cassq.http import queuey  # noqa: PLC0415 - nobody else needs it

        _add(doors, queuey.ROUTES, queuey.MANNER)
        manners = dict.fromkeys(queuey.ROOTS, queuey.MANNER)
    return Router(
        [Path(path, door) for path, door in doors.items()],
        redirect_slashes=False,
        default=partial(_tell_unknown, manners),
        lifespan=live,
    )


def _add(doors: dict[str, Door], routes: Iterable[Route], manner: Manner) -> None:
    for route in routes:
        doors.setdefault(route.path, Door(_service_of, manner)).routes[route.method] = route


def _begin_log(opening: Opening) -> None:
    """Log what clients are not told, as what a fault was."""
    handler = logging.StreamHandler()
    is_json = opening.log_format == "json"
    handler.setFormatter(JsonFormatter() if is_json else logging.Formatter(LOG_FORMAT))
    level = logging.INFO if opening.is_told else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if opening.has_access_log:
        access.turn_on()


def _metrics_of(opening: Opening) -> "ServiceMetrics | None":
    if not opening.has_metrics:
        return None
    from cassq.metrics.service import ServiceMetrics  # noqa: PLC0415 - it may be missing

    return ServiceMetrics()


def _leave_before(service: Service, grace_s: float) -> None:
    """Have the first signal to end say at once that this process is not ready, and end it so much later."""
    if not grace_s:
        return
    loop = asyncio.get_running_loop()
    # Others hear it twice where a supervisor tells all processes: by it, and by the one that started them.
    is_alone = multiprocessing.parent_process() is None
    for number in (signal.SIGTERM, signal.SIGINT):
        end = signal.getsignal(number)

        def leave(number: int, frame: FrameType | None, end: Any = end) -> None:  # noqa: ANN401 - as signal has it
            if not service.is_leaving:
                service.is_leaving = True
                loop.call_soon_threadsafe(loop.call_later, grace_s, end, number, frame)
            elif is_alone:
                end(number, frame)

        signal.signal(number, leave)


async def _follow_parent() -> None:
    """End this process once the one is gone that started it: nobody else could end it."""
    parent = multiprocessing.parent_process()
    while parent is not None:
        if not parent.is_alive():
            signal.raise_signal(signal.SIGTERM)
            return
        await asyncio.sleep(PARENT_S)


def _gate_of(opening: Opening, store: aio.Store) -> AnyGate:
    if opening.is_open:
        return OpenGate()
    return Gate(Applications(store.sync.storage), SystemClock(), may_be_open=opening.is_insecure)


def _service_of(request: Request) -> Service:
    service: Service = request.state.service
    return service


def _document_route() -> Route:
    document = make_document(ROUTES)

    async def tell(_: Call) -> Response:
        return answer(document)

    return Route("GET", "/openapi.json", None, tell, "This document", {})


async def _tell_unknown(manners: Mapping[str, Manner], scope: Scope, receive: Receive, send: Send) -> None:
    """Answer where there is nothing, as clients of paths with this beginning want it."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    error = RefusedError(
        404, "path-not-found", "there is nothing at this path: see /openapi.json, or the manual"
    )
    manner = manners.get(scope["path"].split("/")[1], PLAIN)
    await manner.tell(Request(scope), error)(scope, receive, send)
