"""The log of requests: one line, or one object, for each.

Owns what it tells: never a name in a path, a key, a token or a body.
"""

import logging

from starlette.types import Message, Send

from cassq.http.callers import Caller

_LOG = logging.getLogger("cassq.http.access")

_FORMAT = (
    "%(route)s %(status)d %(bytes)d B %(ms).1f ms, application %(application)s, key %(key)s, from %(address)s"
)


class Outlet:
    """What is sent of an answer.

    Attributes:
        size: so many bytes of the body.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.size = 0

    async def __call__(self, message: Message) -> None:
        """Send one."""
        self.size += len(message.get("body", b""))
        await self._send(message)


def turn_on() -> None:
    """Tell of each request from now on."""
    _LOG.setLevel(logging.INFO)


def is_on() -> bool:
    """Return whether anything is told."""
    return _LOG.isEnabledFor(logging.INFO)


def tell(route: str, status: int, size: int, seconds: float, caller: Caller) -> None:
    """Tell of one request: the bytes of its answer, and how long it took to the end of that."""
    told = {"route": route, "status": status, "bytes": size, "ms": round(1000 * seconds, 1)}
    told |= caller._asdict()
    _LOG.info(_FORMAT, told, extra=told)
