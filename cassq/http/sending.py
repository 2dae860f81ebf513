"""How answers are sent: large ones in pieces, and counted until their clients have taken them.

Owns the bound. What must not break: however many clients ask for much and read nothing, no more than
`HELD_MAX` bytes of large answers are in memory, and what one answer of an application has beyond its part.
"""

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cassq.http.bodies import HELD_MAX, Budget, Share
from cassq.limits import KIB

#: So much is written at once; what is no larger is not counted.
PIECE_BYTES = 256 * KIB


#: Of those who read without a key each address has so much at most.
ADDRESS_BYTES = HELD_MAX // 16


class AnswerBudget(Budget):
    """The bytes of answers that clients have not taken.

    Who holds nothing is given one answer, be it larger than its part, which is what counts of it then: a
    lease that is refused for ever blocks its queue.
    """

    def check(self, count: int, owner: str) -> None:
        """See `Budget.check`."""
        if self.held(owner) or count < self.most_each:
            super().check(count, owner)


class Answers(AnswerBudget):
    """Those of a process.

    Attributes:
        keyless: of those who have no key, by their addresses.
    """

    def __init__(self, most: int = HELD_MAX, address_bytes: int = ADDRESS_BYTES) -> None:
        super().__init__(most)
        self.keyless = AnswerBudget(most, address_bytes)


class Sending:
    """The answer to one request."""

    def __init__(self, budget: Answers) -> None:
        self._budget = budget
        self._shares: list[Share] = []

    def hold(self, response: Response, owner: str, address: str = "") -> Response:
        """Return the answer, which counts until `end`.

        Args:
            owner: the application; "" for who has no key, whose address counts besides.

        Raises: OverloadedError: clients leave too much unread: of this application, this address, or in all.
        """
        size = len(_body_of(response))
        if size > PIECE_BYTES and not self._shares:
            counted = [] if owner else [(self._budget.keyless, address)]
            for budget, name in [(self._budget, owner), *counted]:
                share = Share(budget, name)
                share.resize(min(size, budget.most_each))
                self._shares.append(share)
        return response

    async def send(self, response: Response, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; the next piece follows once the client has taken of the one before.

        Where the process ends meanwhile the rest is left out, and the client sees that the answer has no end.
        """
        body = _body_of(response)
        if len(body) <= PIECE_BYTES:
            await response(scope, receive, send)
            return
        start = {"type": "http.response.start", "status": response.status_code}
        try:
            await send({**start, "headers": response.raw_headers})
            for at in range(0, len(body), PIECE_BYTES):
                piece, has_more = body[at : at + PIECE_BYTES], at + PIECE_BYTES < len(body)
                await send({"type": "http.response.body", "body": piece, "more_body": has_more})
        except asyncio.CancelledError:  # the end of --grace
            return

    def end(self) -> None:
        """Count it no more: it was sent, or nobody wants it."""
        while self._shares:
            self._shares.pop().resize(0)


def _body_of(response: Response) -> bytes | memoryview:
    """Return what is sent; nothing of a stream, which has pieces of its own."""
    body: bytes | memoryview = getattr(response, "body", b"")
    return body
