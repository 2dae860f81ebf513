"""How answers are sent: large ones in pieces, and counted until their clients have taken them.

Owns the bound. What must not break: however many clients ask for much and read nothing, no more than
`HELD_MAX` bytes of large answers are in memory.
"""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cassq.http.bodies import Budget, Share
from cassq.limits import KIB

#: So much is written at once; what is no larger is not counted.
PIECE_BYTES = 256 * KIB


class Sending:
    """The answer to one request."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._share: Share | None = None

    def hold(self, response: Response, owner: str) -> Response:
        """Return the answer, which counts for its application until `end`.

        Raises: OverloadedError: clients leave too much unread, of this application or in all.
        """
        size = len(_body_of(response))
        if size > PIECE_BYTES and self._share is None:
            share = Share(self._budget, owner)
            share.resize(size)
            self._share = share
        return response

    async def send(self, response: Response, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; the next piece follows once the client has taken of the one before."""
        body = _body_of(response)
        if len(body) <= PIECE_BYTES:
            await response(scope, receive, send)
            return
        start = {"type": "http.response.start", "status": response.status_code}
        await send({**start, "headers": response.raw_headers})
        for at in range(0, len(body), PIECE_BYTES):
            piece, has_more = body[at : at + PIECE_BYTES], at + PIECE_BYTES < len(body)
            await send({"type": "http.response.body", "body": piece, "more_body": has_more})

    def end(self) -> None:
        """Count it no more: it was sent, or nobody wants it."""
        if self._share is not None:
            self._share.resize(0)


def _body_of(response: Response) -> bytes | memoryview:
    """Return what is sent; nothing of a stream, which has pieces of its own."""
    body: bytes | memoryview = getattr(response, "body", b"")
    return body
