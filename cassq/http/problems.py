"""How errors are told over HTTP: `application/problem+json` of RFC 9457.

Owns the mapping from the tree of errors, and from what HTTP alone can get wrong. What must not break: nobody
is told what is another's: neither names of other queues, nor what is stored; and no token of a lease is told,
wherever in a request it was put.
"""

import logging
import re
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from cassq.errors import (
    CassqError,
    KeyRefusedError,
    QueueNotFoundError,
    RateExceededError,
    TopicNotFoundError,
)

_log = logging.getLogger("cassq.http")

MEDIA_TYPE = "application/problem+json"

#: A token of a lease, or a part of one that would do, behind what may be shown of it.
_TOKEN = re.compile(r"(A[Q-Za-f][A-Za-z0-9_-]{10})[A-Za-z0-9_-]{20,}={0,2}")

_INTERNAL = 500
_TRY_LATER = {429, 503}


class Problem(msgspec.Struct, omit_defaults=True):
    """What went wrong.

    Attributes:
        type: names the kind, as `urn:cassq:error:CODE`.
        title: its name.
        detail: what, and the way out.
        done: of many messages: so many at least are durable.
        outcomes: of many leases: what each came to.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    done: int | None = None
    outcomes: list[str] | None = None


class RefusedError(CassqError):
    """Raised when a request breaks a rule of the door.

    Attributes:
        status: what it is answered with.
        headers: that go with it.
    """

    def __init__(self, status: int, name: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.name = name
        self.headers = headers or {}


class PartlyDoneError(CassqError):
    """Raised when it is known of each part of a request whether it was done, and not all was.

    Attributes:
        cause: why.
        done: how many messages are durable at least.
        outcomes: what each lease came to.
    """

    def __init__(self, cause: CassqError, done: int | None = None, outcomes: list[str] | None = None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.done = done
        self.outcomes = outcomes


def to_problem(error: Exception) -> Problem:
    """Return what is told of an error."""
    if isinstance(error, PartlyDoneError):
        told = to_problem(error.cause)
        told.done, told.outcomes = error.done, error.outcomes
        return told
    if isinstance(error, RefusedError):
        return _problem(error.status, error.name, str(error))
    if isinstance(error, QueueNotFoundError):
        return _problem(404, error.code, "there is no queue of this name: PUT /v1/queues/NAME makes one")
    if isinstance(error, TopicNotFoundError):
        return _problem(404, error.code, "there is no topic of this name: PUT /v1/topics/NAME makes one")
    if isinstance(error, CassqError) and error.http_status != _INTERNAL:
        return _problem(error.http_status, error.code, str(error))
    code = error.code if isinstance(error, CassqError) else "internal"
    return _problem(_INTERNAL, code, "the service cannot do this; its log tells why")


def _problem(status: int, code: str, detail: str) -> Problem:
    detail = _TOKEN.sub(r"\1…", detail)
    return Problem(f"urn:cassq:error:{code}", code.replace("-", " "), status, detail, code)


def answer_problem(error: Exception) -> Response:
    """Return the answer for an error; what is nobody's fault outside is logged."""
    told = to_problem(error)
    if told.status == _INTERNAL:
        _log.error("a request failed: %s", error, exc_info=error)
    headers = dict(error.headers) if isinstance(error, RefusedError) else {}
    if isinstance(error, RateExceededError):
        headers["Retry-After"] = str(max(1, round(error.retry_after_s + 0.5)))
    elif told.status in _TRY_LATER:
        headers["Retry-After"] = "1"
    if isinstance(error, KeyRefusedError):
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(told), told.status, headers, MEDIA_TYPE)
