"""One request: its route, who asks, and what is sent along.

Owns what a route is and the order in which a request is looked at: who asks first, and nothing of the body
before that. What must not break: nothing is read, or done, for somebody whom the gate did not let in.
"""

import asyncio
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from cassq.errors import InvalidOptionError, UnavailableError
from cassq.gate.applications import Application, Right
from cassq.gate.gate import Admitted, Asked
from cassq.gate.names import full_name
from cassq.http import access
from cassq.http.bodies import JSON_MAX, Share, convert, decode, read_body
from cassq.http.callers import Caller, bearer_key, check_sender, find_origin, refused_key, told_address
from cassq.http.problems import RefusedError, answer_problem, cut_off
from cassq.http.sending import Sending
from cassq.http.service import Service

JSON = "application/json"

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
        sending: of its answer.
    """

    request: Request
    service: Service
    asked: Asked
    admitted: Admitted
    query: Any
    sending: Sending
    body: Any = None

    def hold(self, response: Response) -> Response:
        """Return the answer, which counts from now on; see `Sending.hold`."""
        address = "" if self.admitted is not NOBODY else told_address(self.request, self.service.proxies)
        return self.sending.hold(response, self.admitted.application.name, address)

    def name(self, what: str) -> str:
        """Return the name in the store of the queue, or topic, that the path names."""
        return full_name(self.admitted.application.prefix, self.request.path_params[what], f"{what} name")

    async def check(self) -> None:
        """Raise where the client may have nothing any more: it waited, and its key was revoked meanwhile."""
        await self.service.admit(self.asked, is_counted=False)

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
        query: the words of its query; a mapping where the handler reads them itself.
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
    query: Any = Nothing
    body: type[msgspec.Struct] | None = None
    media: Sequence[str] = ()


def answer(value: Any, status: int = 200) -> Response:  # noqa: ANN401 - whatever is JSON
    """Return JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


@dataclass(frozen=True, slots=True)
class Manner:
    """How an interface wants keys, and tells what went wrong.

    Attributes:
        key_of: returns the key that came with a request.
        tell: answers a request with an error.
    """

    key_of: Callable[[Request], str | None]
    tell: Callable[[Request, Exception], Response]


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


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


@dataclass(frozen=True, slots=True)
class Door:
    """The ASGI application of one path.

    Attributes:
        routes: by method.
    """

    service_of: Callable[[Request], Service]
    manner: Manner
    routes: dict[str, Route] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        intake = _Intake(receive)
        request = Request(scope, intake)
        sending = Sending(self.service_of(request).answers)
        try:
            await self._serve(request, intake, send, sending)
        finally:
            sending.end()

    async def _serve(self, request: Request, intake: _Intake, send: Send, sending: Sending) -> None:
        scope = request.scope
        begun = time.perf_counter()
        route = self.routes.get(scope["method"]) or self._headless(scope["method"])
        calls: list[Call] = []
        try:
            response = await self._answer(request, route, calls, sending)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:  # the end of --grace
            late = _LATE if scope["method"] in _READING else cut_off()
            response = self.manner.tell(request, late)
        except Exception as error:
            response = self.manner.tell(request, error)
        service = self.service_of(request)
        is_told = access.is_on()
        if service.metrics or is_told:
            name = f"{route.method if route else '?'} {next(iter(self.routes.values())).path}"
        if service.metrics:
            service.metrics.note_answer(name, response.status_code, time.perf_counter() - begun)
        if not intake.is_done and _has_body(request):
            # What is left of the body nobody reads: no other request comes behind it.
            response.headers["Connection"] = "close"
        if not is_told:
            await sending.send(response, scope, intake, send)
            return
        sent = access.Outlet(send)
        try:
            await sending.send(response, scope, intake, sent)
        finally:
            who = next((each.admitted for each in calls if each.admitted is not NOBODY), None)
            key = who.key_id if who else refused_key(request, self.manner.key_of)
            application = who.application.name if who else None
            caller = Caller(application, key, told_address(request, service.proxies))
            access.tell(name, response.status_code, sent.size, time.perf_counter() - begun, caller)

    def _headless(self, method: str) -> Route | None:
        """Return the route whose answer HEAD is told without its body; a stream has none."""
        route = self.routes.get("GET") if method == "HEAD" else None
        return None if route is None or isinstance(route.answers.get(200), str) else route

    async def _answer(
        self, request: Request, route: Route | None, calls: list[Call], sending: Sending
    ) -> Response:
        if route is None:
            methods = {*self.routes, "HEAD"} if self._headless("HEAD") else self.routes
            allowed = ", ".join(sorted(methods))
            raise RefusedError(405, "method-not-allowed", f"this path takes {allowed}", {"Allow": allowed})
        service = self.service_of(request)
        asked = Asked(None, route.right or Right.LOOK, find_origin(request, service.proxies))
        call = Call(request, service, asked, NOBODY, None, sending)
        calls.append(call)
        if route.right is not None:
            await let_in(call, route.right, self.manner.key_of(request))
        if "idempotency-key" in request.headers:
            raise RefusedError(501, "not-implemented", "Idempotency-Key is not known yet: leave it out")
        call.query = convert(_words(request), route.query, "the query")
        if route.body is None and route.media:
            return call.hold(await route.handle(call))
        with call.share() as share:
            text = await read_body(request, share, JSON_MAX)
            if route.body is not None:
                _check_media(request, text)
                call.body = decode(text or b"{}", route.body, "the body")
            elif text:
                raise InvalidOptionError("this call takes no body")
            return call.hold(await route.handle(call))


async def let_in(call: Call, right: Right, key: str | None) -> None:
    """Have the gate say who calls.

    Raises: as `Gate.admit`.
    """
    check_sender(call.request, call.service.proxies, is_open=call.service.is_open)
    call.asked = Asked(key, right, call.asked.origin)
    call.admitted = await call.service.admit(call.asked)


#: Who calls a route that needs no right.
NOBODY = Admitted(Application("", frozenset()), "")


def _check_media(request: Request, text: bytes) -> None:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if text and media != JSON:
        raise RefusedError(415, "content-type", f"this call takes `Content-Type: {JSON}`")


#: How `/v1` has it: a bearer's key, and problems of RFC 9457.
PLAIN = Manner(bearer_key, lambda _, error: answer_problem(error))


def _words(request: Request) -> dict[str, str]:
    words: dict[str, str] = {}
    if not request.scope["query_string"]:  # mostly, and to find that out by parsing takes its time
        return words
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
