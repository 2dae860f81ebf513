"""The JSON of the calls about leases.

Owns names, units and bounds, as `cassq.http.forms` does for the others.
"""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from cassq.http.forms import LIMIT_MAX, Answer, Count, Seconds
from cassq.model.lease import Extension, Settled

#: A client waits for so many seconds at most, and asks again.
WAIT_MAX_S = 60


class Wanted(Struct, forbid_unknown_fields=True):
    """How many messages to lease, and how long to wait for the first of them."""

    count: Count = 1
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_MAX_S)] = 0


class LeasedMessage(Answer):
    """A message of a lease.

    Attributes:
        encoding: of the body: "utf-8", or "base64".
    """

    id: str
    body: str
    encoding: str
    headers: dict[str, str]
    pushed_at: datetime
    priority: int
    type: str | None = None


class Lease(Answer):
    """Messages that one client has until it settles the lease, or its time is over.

    Attributes:
        lease: the token: who knows it may settle the lease.
        attempt: how many times its messages were handed out, this time included.
        left_s: how long it runs, unless it is extended.
    """

    lease: str
    attempt: int
    left_s: float
    messages: list[LeasedMessage]


class Leases(Answer):
    """What was leased; messages that came back, or are of several pipes, are leases of their own."""

    leases: list[Lease]


class Line(Answer):
    """One message, and its lease; lines with the same token are one lease."""

    lease: str
    attempt: int
    left_s: float
    message: LeasedMessage


class GivenLeases(Struct, forbid_unknown_fields=True):
    """Leases, by their tokens."""

    leases: Annotated[list[str], Meta(min_length=1, max_length=LIMIT_MAX)]


class Outcomes(Answer):
    """What each lease came to, in the order in which they were given.

    Attributes:
        outcomes: committed: durable, and in time; ended: all had ended before; expired: what has not ended is
            delivered again; unknown: call again.
    """

    outcomes: list[Settled]


class Extended(Answer):
    """What an extension came to, and how long the lease runs now."""

    outcome: Extension
    left_s: float


class Extensions(Answer):
    """What became of each lease, in the order in which they were given."""

    outcomes: list[Extended]


class Return(Struct, forbid_unknown_fields=True):
    """How messages go back.

    Attributes:
        id: of one; left out for all that are not named.
        delay_s: left out for as long as the retry settings say.
    """

    id: str | None = None
    delay_s: Seconds | None = None
    reason: str = ""


class Rejection(Struct, forbid_unknown_fields=True):
    """Why messages become dead letters.

    Attributes:
        id: of one; left out for all that are not named.
    """

    id: str | None = None
    reason: str = ""


class Settlement(Struct, forbid_unknown_fields=True):
    """A lease, and which of its messages go back or are given up; all others are committed."""

    lease: str
    rollback: Annotated[list[Return], Meta(max_length=LIMIT_MAX)] = []
    reject: Annotated[list[Rejection], Meta(max_length=LIMIT_MAX)] = []


class Outcome(Answer):
    """What a lease came to."""

    outcome: Settled
