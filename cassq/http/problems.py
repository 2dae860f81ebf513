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
    GroupNotFoundError,
    KeyRefusedError,
    OutcomeUnknownError,
    PartitionLostError,
    QueueNotFoundError,
    RateExceededError,
    TopicNotFoundError,
)

_log = logging.getLogger("cassq.http")

MEDIA_TYPE = "application/problem+json"

#: A token of a lease, or a part of one that would do, behind what may be shown of it.
_TOKEN = re.compile(r"(A[Q-Za-f][A-Za-z0-9_-]{10})[A-Za-z0-9_-]{20,}={0,2}")
#: What is told where the words of the error name files, hosts, names in the store, or calls of the library.
_WORDS = {
    QueueNotFoundError.code: "there is no queue of this name: PUT /v1/queues/NAME makes one",
    TopicNotFoundError.code: "there is no topic of this name: PUT /v1/topics/NAME makes one",
    GroupNotFoundError.code: "the topic has no group of this name: PUT …/groups/NAME makes one",
    PartitionLostError.code: "the lease is over: what was not committed of it comes again",
    "unavailable": "this cannot be done at present: try again",
    "storage-unavailable": "the database does not answer as it should: try again",
    "coordination-unavailable": "the coordination service does not answer as it should: try again",
    "outcome-unknown": "it may have been done, or not: look, before you do it again",
    "closed": "the service closed it meanwhile: try again",
}

#: So many characters are told of one error at most: it may name what a client sent.
WORDS_MAX = 1000

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
    """Raised when not all of a request was done, and what was is known: of how many messages, or each lease.

    Attributes:
        cause: why.
        done: how many messages are durable at least.
        outcomes: what each lease came to.
    """

    def __init__(self, cause: Exception, done: int | None = None, outcomes: list[str] | None = None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.done = done
        self.outcomes = outcomes


def cut_off() -> OutcomeUnknownError:
    """Return the error of a request that was under way when the process ended."""
    return OutcomeUnknownError("the process ended meanwhile")


def to_problem(error: Exception) -> Problem:
    """Return what is told of an error."""
    if isinstance(error, PartlyDoneError):
        told = to_problem(error.cause)
        told.done, told.outcomes = error.done, error.outcomes
        return told
    if isinstance(error, RefusedError):
        return _problem(error.status, error.name, str(error))
    if isinstance(error, CassqError) and error.http_status != _INTERNAL:
        return _problem(error.http_status, error.code, _WORDS.get(error.code, str(error)))
    code = error.code if isinstance(error, CassqError) else "internal"
    return _problem(_INTERNAL, code, "the service cannot do this; its log tells why")


def _problem(status: int, code: str, detail: str) -> Problem:
    return Problem(f"urn:cassq:error:{code}", code.replace("-", " "), status, shown(detail), code)


def without_tokens(told: object) -> str:
    """Return words in which no token of a lease is told."""
    return _TOKEN.sub(r"\1…", str(told))


def shown(told: object) -> str:
    """Return words for a client: of long ones the beginning."""
    words = without_tokens(told)
    return words if len(words) <= WORDS_MAX else f"{words[:WORDS_MAX]}…"


def answer_problem(error: Exception) -> Response:
    """Return the answer for an error; what is nobody's fault outside is logged."""
    told = to_problem(error)
    if told.status == _INTERNAL:
        _log.error("a request failed: %s", without_tokens(error), exc_info=error)
    elif told.status > _INTERNAL and told.code in _WORDS:
        _log.warning("a request was answered %d %s: %s", told.status, told.code, without_tokens(error))
    headers = dict(error.headers) if isinstance(error, RefusedError) else {}
    if isinstance(error, RateExceededError):
        headers["Retry-After"] = str(max(1, round(error.retry_after_s + 0.5)))
    elif told.status in _TRY_LATER and told.done is None:  # to send all of it again would double some
        headers["Retry-After"] = "1"
    if isinstance(error, KeyRefusedError):
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(told), told.status, headers, MEDIA_TYPE)
