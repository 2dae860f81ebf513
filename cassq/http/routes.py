"""One request: its route, who asks, and what is sent along.

Owns what a route is and the order in which a request is looked at: who asks first, and nothing of the body
before that. What must not break: nothing is read, or done, for somebody whom the gate did not let in.
"""

import asyncio
import logging
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from cassq.errors import CassqError, InvalidOptionError, KeyRefusedError, UnavailableError
from cassq.gate.addresses import check_no_proxy, origin_of
from cassq.gate.applications import Application, Right
from cassq.gate.gate import Admitted, Asked
from cassq.gate.keys import Key
from cassq.gate.names import full_name
from cassq.http.bodies import JSON_MAX, Share, convert, decode, read_body
from cassq.http.browsers import check_no_page
from cassq.http.problems import RefusedError, answer_problem, cut_off
from cassq.http.service import Service

ACCESS_LOG = "cassq.http.access"
_access = logging.getLogger("cassq.http.access")

JSON = "application/json"

_ACCESS = (
    "%(route)s %(status)d %(bytes)d B %(ms).1f ms, application %(application)s, key %(key)s, from %(address)s"
)

#: Methods that change nothing.
_READING = {"GET", "HEAD"}
_LATE = UnavailableError("the process ended meanwhile")


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """No words of a query, or no fields of a body."""


@dataclass(slots=True)
class Call:
    """One request that was let in.

    Attributes:
        query: its words, as the route says.
        body: its JSON, as the route says; None where it has none, or reads it itself.
    """

    request: Request
    service: Service
    asked: Asked
    admitted: Admitted
    query: Any
    body: Any = None

    def name(self, what: str) -> str:
        """Return the name in the store of the queue, or topic, that the path names."""
        return full_name(self.admitted.application.prefix, self.request.path_params[what], f"{what} name")

    def share(self) -> AbstractContextManager[Share]:
        """Return what this request holds of its application's share of memory."""
        return self.service.budget.share(self.admitted.application.name)

    def own(self, what: str) -> str:
        """Return that name as the path has it."""
        return str(self.request.path_params[what])


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One route of the service.

    Attributes:
        right: what it needs; None lets everybody in, without a key.
        query: the words of its query.
        body: its JSON; None where it takes none.
        media: of a body that the handler reads itself.
        answers: by status: a type of JSON, a media type, or several of them, as clients accept; None for
            nothing.
    """

    method: str
    path: str
    right: Right | None
    handle: Handler
    summary: str
    answers: Mapping[int, Any]
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] | None = None
    media: Sequence[str] = ()


def answer(value: Any, status: int = 200) -> Response:  # noqa: ANN401 - whatever is JSON
    """Return JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


class _Intake:
    """What is received of a request.

    Attributes:
        is_done: whether all of it was.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_done = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.is_done = self.is_done or not message.get("more_body", False)
        return message


class _Outlet:
    """What is sent of an answer.

    Attributes:
        size: so many bytes of the body.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.size = 0

    async def __call__(self, message: Message) -> None:
        self.size += len(message.get("body", b""))
        await self._send(message)


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


@dataclass(frozen=True, slots=True)
class Door:
    """The ASGI application of one path.

    Attributes:
        routes: by method.
    """

    service_of: Callable[[Request], Service]
    routes: dict[str, Route] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        intake = _Intake(receive)
        request = Request(scope, intake)
        begun = time.perf_counter()
        route = self.routes.get(scope["method"]) or self._headless(scope["method"])
        admitted: list[Admitted] = []
        try:
            response = await self._answer(request, route, admitted)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:  # the end of --grace
            response = answer_problem(_LATE if scope["method"] in _READING else cut_off())
        except CassqError as error:
            response = answer_problem(error)
        except Exception as error:
            response = answer_problem(error)
        service = self.service_of(request)
        is_told = _access.isEnabledFor(logging.INFO)
        if service.metrics or is_told:
            name = f"{route.method if route else '?'} {next(iter(self.routes.values())).path}"
        if service.metrics:
            service.metrics.note_answer(name, response.status_code, time.perf_counter() - begun)
        if not intake.is_done and _has_body(request):
            # What is left of the body nobody reads: no other request comes behind it.
            response.headers["Connection"] = "close"
        if not is_told:
            await response(scope, intake, send)
            return
        sent = _Outlet(send)
        try:
            await response(scope, intake, sent)
        finally:
            who = admitted[0] if admitted else None
            told = {
                "route": name,
                "status": response.status_code,
                "bytes": sent.size,
                "ms": round(1000 * (time.perf_counter() - begun), 1),
                "application": who and who.application.name,
                "key": who.key_id if who else _told_key(request),
                "address": _told_client(request, service),
            }
            _access.info(_ACCESS, told, extra=told)

    def _headless(self, method: str) -> Route | None:
        """Return the route whose answer HEAD is told without its body; a stream has none."""
        route = self.routes.get("GET") if method == "HEAD" else None
        return None if route is None or isinstance(route.answers.get(200), str) else route

    async def _answer(self, request: Request, route: Route | None, admitted: list[Admitted]) -> Response:
        if route is None:
            allowed = ", ".join(sorted(self.routes))
            raise RefusedError(405, "method-not-allowed", f"this path takes {allowed}", {"Allow": allowed})
        service = self.service_of(request)
        asked = Asked(None, route.right or Right.LOOK, _origin(request, service))
        call = Call(request, service, asked, NOBODY, None)
        if route.right is not None:
            _check_sender(request, service)
            call.asked = Asked(_key_of(request), route.right, asked.origin)
            call.admitted = await service.admit(call.asked)
            admitted.append(call.admitted)
        if "idempotency-key" in request.headers:
            raise RefusedError(501, "not-implemented", "Idempotency-Key is not known yet: leave it out")
        call.query = convert(_words(request), route.query, "the query")
        if route.body is None and route.media:
            return await route.handle(call)
        with call.share() as share:
            text = await read_body(request, share, JSON_MAX)
            if route.body is not None:
                _check_media(request, text)
                call.body = decode(text or b"{}", route.body, "the body")
            elif text:
                raise InvalidOptionError("this call takes no body")
            return await route.handle(call)


#: Who calls a route that needs no right.
NOBODY = Admitted(Application("", frozenset()), "")


def _check_sender(request: Request, service: Service) -> None:
    client = request.scope.get("client")
    check_no_proxy(client[0] if client else None, request.headers, service.proxies)
    if service.is_open:
        check_no_page(request)


def _check_media(request: Request, text: bytes) -> None:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if text and media != JSON:
        raise RefusedError(415, "content-type", f"this call takes `Content-Type: {JSON}`")


def _origin(request: Request, service: Service) -> Any:  # noqa: ANN401
    client = request.scope.get("client")
    return origin_of(
        client[0] if client else None,
        request.headers.getlist("x-forwarded-for"),
        request.headers.getlist("x-forwarded-proto"),
        service.proxies,
        is_tls=request.scope["scheme"] == "https",
    )


def _key_of(request: Request) -> str | None:
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise KeyRefusedError("there are several Authorization headers: send one")
    scheme, _, key = (given[0] if given else "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _told_key(request: Request) -> str | None:
    """Return the id of a key that was refused, for the log: the form of one says nothing of whose it is."""
    with suppress(KeyRefusedError):
        key = Key.parse(_key_of(request) or "")
        return f"{key.id} (refused)" if key else None
    return None


def _told_client(request: Request, service: Service) -> str:
    with suppress(InvalidOptionError):
        return str(_origin(request, service).address)
    return str((request.scope.get("client") or ["?"])[0])


def _words(request: Request) -> dict[str, str]:
    words: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in words:
            raise InvalidOptionError(f"the query has {name!r} twice")
        words[name] = value
    return words


def body_to_text(body: bytes) -> tuple[str, str]:
    """Return a body as a text of JSON, and how that is to be read: "utf-8", or "base64"."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(body).decode("ascii"), "base64"
