"""Patience with servers that have just started, or have just lost a peer, on a busy machine."""

from collections.abc import Callable
from typing import TypeVar

from cassq.errors import OutcomeUnknownError, UnavailableError

Answer = TypeVar("Answer")

ATTEMPTS = 20


def patiently(do: Callable[[], Answer]) -> Answer:
    """Do what may be done twice, again while nobody answers."""
    for _ in range(ATTEMPTS - 1):
        try:
            return do()
        except (UnavailableError, OutcomeUnknownError):
            continue
    return do()
