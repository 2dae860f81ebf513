"""All calls of `cassq serve --queuey`: what Mozilla's Queuey shipped, and what its wiki had proposed.

Owns the table, as `cassq.http.table` does for `/v1`. Nothing imports this where `--queuey` is not given. What
must not break: a route without a right asks the gate itself, and reads public queues alone without a key.
"""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from cassq.gate.applications import Right
from cassq.http import queuey_messages, queuey_posting, queuey_proposed, queuey_queues, queuey_workers
from cassq.http.queuey_forms import done, key_of, tell
from cassq.http.routes import Call, Handler, Manner, Route
from cassq.http.table import READY_S

MANNER = Manner(key_of, tell)

#: With one of these its paths begin.
ROOTS = ("queue", "queuey", "__heartbeat__")

_APPLICATION = "/queuey/v1/{application}"
_APPLICATIONS = (_APPLICATION, f"{_APPLICATION}/")  # Queuey's own client writes a slash
_QUEUE = f"{_APPLICATION}/{{queue}}"
_MESSAGES = f"{_QUEUE}/{{ids}}"
_NAMED = "/queue/{queue}"

#: Bodies are read by the calls, whatever they say that they are.
_ANY = ("*/*",)
_OK: Mapping[int, Any] = {200: dict[str, Any]}


async def _heartbeat(call: Call) -> Response:
    """Tell whether the database answers."""
    await call.service.know(READY_S)
    return done()


def _reads(path: str, right: Right | None, handle: Handler, summary: str) -> Route:
    return Route("GET", path, right, handle, summary, _OK, query=dict[str, str])


def _takes(method: str, path: str, right: Right, handle: Handler) -> Route:
    return Route(method, path, right, handle, "", _OK, media=_ANY)


ROUTES = [
    _reads("/__heartbeat__", None, _heartbeat, "Tell whether the database answers"),
    *(_reads(each, Right.LOOK, queuey_queues.list_all, "List queues") for each in _APPLICATIONS),
    *(_takes("POST", each, Right.STEER, queuey_queues.create) for each in _APPLICATIONS),
    _reads(_QUEUE, None, queuey_messages.read, "Read messages"),
    _takes("POST", _QUEUE, Right.PUSH, queuey_posting.post),
    _takes("PUT", _QUEUE, Right.STEER, queuey_queues.update),
    _takes("DELETE", _QUEUE, Right.STEER, queuey_queues.delete),
    _reads(_MESSAGES, None, queuey_messages.read_by_ids, "Read messages by their ids"),
    _takes("PUT", _MESSAGES, Right.PUSH, queuey_messages.replace_by_ids),
    _takes("DELETE", _MESSAGES, Right.STEER, queuey_messages.delete_by_ids),
    _takes("POST", "/queue", Right.STEER, queuey_proposed.create),
    _reads(_NAMED, None, queuey_proposed.read, "Read messages"),
    _takes("POST", _NAMED, Right.PUSH, queuey_proposed.push),
    Route("DELETE", _NAMED, Right.STEER, queuey_proposed.delete, "", _OK, query=dict[str, str]),
    _reads(f"{_NAMED}/info", None, queuey_proposed.info, "Tell of a queue"),
    _takes("POST", f"{_NAMED}/reserve", Right.POP, queuey_workers.reserve),
    _takes("POST", f"{_NAMED}/verify", Right.POP, queuey_workers.verify),
    _takes("POST", f"{_NAMED}/retry", Right.POP, queuey_workers.retry),
    _takes("POST", f"{_NAMED}/fail", Right.POP, queuey_workers.fail),
    _takes("POST", f"{_NAMED}/extend", Right.POP, queuey_workers.extend),
]
