"""The JSON of the calls about dead letters.

Owns names, units and bounds, as `cassq.http.forms` does for the others.
"""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from cassq.http.forms import LIMIT_MAX, Count, Seconds
from cassq.observing.redriving import RATE_MIN


class LettersQuery(Struct, forbid_unknown_fields=True):
    """Which dead letters.

    Attributes:
        after: the id of the one before; null from the first on.
    """

    after: str | None = None
    limit: Count = 100


class Letter(Struct):
    """A dead letter.

    Attributes:
        encoding: of the body: "utf-8", or "base64".
        attempts: how often it was handed out.
        reason, died_at: why and when it was given up.
    """

    id: str
    body: str
    encoding: str
    headers: dict[str, str]
    pushed_at: datetime
    priority: int
    type: str | None
    key: str | None
    attempts: int
    reason: str
    died_at: datetime


class Letters(Struct):
    """Dead letters, in the order of their ids.

    Attributes:
        next: give it as `after` for those that follow; null where none do.
    """

    letters: list[Letter]
    next: str | None


class Where(Struct, forbid_unknown_fields=True):
    """Which dead letters are meant: those that fit all that is said.

    Attributes:
        reason: a shell pattern.
        headers: that they have, with these values.
        older_s: they died so long ago at least.
    """

    reason: str | None = None
    headers: dict[str, str] = {}
    older_s: Seconds | None = None


class Redrive(Struct, forbid_unknown_fields=True):
    """Which dead letters are pushed again, and how; exactly one of ids, where and all.

    Attributes:
        target: another queue of the application; null for the one that they are of.
        limit: at most so many, the oldest first.
        rate_max: at most so many a second.
        dry_run: push nothing, only tell what would be.
    """

    ids: Annotated[list[str], Meta(min_length=1, max_length=LIMIT_MAX)] | None = None
    where: Where | None = None
    all: bool = False
    target: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    rate_max: Annotated[float, Meta(ge=RATE_MIN, le=1_000_000)] | None = None
    dry_run: bool = False


class Progress(Struct, omit_defaults=True):
    """How far a redrive is; the last line has the reasons, or a problem.

    Attributes:
        redriven: how many were pushed again by now.
        reasons: how many of them had died of what.
    """

    redriven: int
    is_done: bool = False
    reasons: dict[str, int] | None = None


class DiscardQuery(Struct, forbid_unknown_fields=True):
    """Which dead letters are removed for ever.

    Attributes:
        ids: with commas between them.
        confirm: the name of the queue: all of them.
    """

    ids: str | None = None
    confirm: str | None = None
