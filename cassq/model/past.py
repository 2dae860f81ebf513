"""The earlier attempts of a run that came back.

Owns what is kept of them, and its text. Refuses to know why runs come back. What must not break: they are
told to people, and decide nothing.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

#: So many are kept, the last ones, each with so much of its reason.
ATTEMPTS_KEPT = 16
REASON_KEPT = 100


class Attempt(NamedTuple):
    """One time that a run was handed out, and came back.

    Attributes:
        holder: who had it.
        leased_at_ms: when its lease began, by the database's clock; 0 where its holder gave it back.
        reason: why it came back.
    """

    attempt: int
    holder: str
    leased_at_ms: int
    reason: str


def grown(past: tuple[Attempt, ...], latest: Attempt) -> tuple[Attempt, ...]:
    """Return the attempts with one more, but for one that counts as none: nothing of it was handed out."""
    if latest.attempt <= (past[-1].attempt if past else 0):
        return past
    return (*past, latest._replace(reason=shortened(latest.reason)))[-ATTEMPTS_KEPT:]


def shortened(reason: str) -> str:
    """Return a reason as it is kept."""
    return reason if len(reason) <= REASON_KEPT else f"{reason[: REASON_KEPT - 1]}…"


def past_to_text(past: Iterable[Attempt]) -> str:
    """Return them as they are stored; "" for none."""
    told = [*map(list, past)]
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False) if told else ""


def past_from_text(text: str) -> tuple[Attempt, ...]:
    """Read them back.

    Raises: ValueError, TypeError: that is no such text.
    """
    try:
        return past_from_list(json.loads(text)) if text else ()
    except RecursionError as error:
        raise ValueError(f"earlier attempts are lists of four: {error}") from error


def past_from_list(told: object) -> tuple[Attempt, ...]:
    """Read them from lists of four.

    Raises: ValueError, TypeError: those are none.
    """
    if not isinstance(told, list):
        raise TypeError("earlier attempts are a list")
    found = []
    for attempt, holder, leased_at_ms, reason in told:
        if tuple(map(type, (attempt, holder, leased_at_ms, reason))) != (int, str, int, str):
            raise ValueError("an earlier attempt has a number, a holder, a time and a reason")
        found.append(Attempt(attempt, holder, leased_at_ms, reason))
    return tuple(found)
