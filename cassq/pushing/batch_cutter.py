"""Cuts many messages into parts, each small enough for one write and for one pipe.

Owns the checks of what `push_many` is given, message by message. What comes from an iterable is read as it is
needed.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from cassq.errors import BodyTooLargeError, InvalidOptionError
from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from cassq.model.ids import shorten
from cassq.model.message import NO_HEADERS, Headers, check_body, check_headers, size_of
from cassq.model.settings import QueueSettings


class _Bounded(Protocol):
    @property
    def body_bytes_max(self) -> int: ...


_S = TypeVar("_S", bound=_Bounded)

#: Bodies, and one mapping of headers for each.
Part = tuple[tuple[bytes, ...], tuple[Headers, ...]]


def bounds_of(settings: QueueSettings) -> tuple[int, int]:
    """Return how many messages, and how many bytes, one batch carries at most."""
    return min(BATCH_MESSAGES_MAX, settings.pipe_messages_max), min(BATCH_BYTES_MAX, settings.pipe_bytes_max)


class BatchCutter(Generic[_S]):
    """Cuts by the settings of one queue, which may be altered meanwhile.

    Args:
        settings: returns them as far as is known; with True as they stand now.
        bounds: how many messages, and how many bytes, one part has at most by them.
    """

    def __init__(self, settings: Callable[[bool], _S], bounds: Callable[[_S], tuple[int, int]]) -> None:
        self._settings, self._bounds = settings, bounds

    def cut(self, messages: Iterable[bytes | tuple[bytes, Headers]]) -> Iterator[Part]:
        """Yield the messages in parts, in order.

        Raises: InvalidOptionError, BodyTooLargeError: a message breaks a rule; of those before it the parts
            that were full have come.
        """
        bodies: list[bytes] = []
        headers: list[Headers] = []
        size = 0
        settings = self._settings(False)
        body_max, (messages_max, bytes_max) = settings.body_bytes_max, self._bounds(settings)
        for message in _each_of(messages):
            body, header = _parts_of(message)
            try:
                checked = check_body(body, body_max)
            except BodyTooLargeError:
                body_max = self._settings(True).body_bytes_max
                checked = check_body(body, body_max)
            weight = size_of(checked, header)
            if bodies and (len(bodies) >= messages_max or size + weight > bytes_max):
                yield tuple(bodies), tuple(headers)
                bodies, headers, size = [], [], 0
                settings = self._settings(False)
                body_max, (messages_max, bytes_max) = settings.body_bytes_max, self._bounds(settings)
            bodies.append(checked)
            headers.append(header)
            size += weight
        if bodies:
            yield tuple(bodies), tuple(headers)


def _each_of(messages: object) -> Iterator[object]:
    try:
        return iter(messages)  # type: ignore[call-overload, no-any-return]  # which refuses what is no row
    except TypeError as error:
        raise InvalidOptionError(
            f"push_many takes bodies, or pairs of a body and its headers, one after the other, "
            f"not {shorten(messages)}; push() takes a single body"
        ) from error


def _parts_of(message: object) -> tuple[object, Headers]:
    if not isinstance(message, tuple):
        return message, NO_HEADERS
    if len(message) != 2:
        raise InvalidOptionError(
            f"{shorten(message)} has {len(message)} parts: a message is a body, or a body and its headers"
        )
    body, headers = message
    return body, check_headers(headers)
