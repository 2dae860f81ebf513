"""HTTP/1.1 on a connection, with deadlines: uvicorn has none for what a client does not send.

Owns how slow and how large the parts of a request may be before anybody reads them. What must not break: a
client that stops, or is slow on purpose, holds a connection for seconds, not for ever.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

#: The first line and the headers: all of them within so long, and no larger.
HEADERS_S = 10.0
HEADERS_BYTES_MAX = 64 * 1024

#: Of a body so much has to come in so long, or its end.
BODY_S = 10.0
BODY_BYTES = 64 * 1024

#: A client that takes nothing of an answer for so long is left.
TAKE_S = 30.0


class DeadlineProtocol(HttpToolsProtocol):
    """One connection."""

    _deadline: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _is_in_headers = True
    _is_refused = False
    _head_size = 0
    _body_size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect the first request."""
        super().connection_made(transport)
        self._arm(HEADERS_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        self._disarm()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, unless it is too much."""
        if self._is_refused:
            return
        if self._is_in_headers:
            self._head_size += len(data)
            if self._deadline is None:
                self._arm(HEADERS_S)
        super().data_received(data)
        if self._is_in_headers and self._head_size > HEADERS_BYTES_MAX:
            self._refuse(431)

    def on_url(self, url: bytes) -> None:
        """Take a part of the first line."""
        self._note_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._note_head(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_message_begin(self) -> None:
        """Expect headers."""
        super().on_message_begin()
        self._is_in_headers, self._told_size = True, 0

    _told_size = 0

    def _note_head(self, size: int) -> None:
        self._told_size += size
        if self._told_size > HEADERS_BYTES_MAX:
            self._refuse(431)

    def on_headers_complete(self) -> None:
        """Expect a body."""
        if self._is_refused:
            return
        self._is_in_headers, self._head_size, self._body_size = False, 0, 0
        self._arm(BODY_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if self._is_refused:
            return
        self._body_size += len(body)
        if self._body_size >= BODY_BYTES:
            self._body_size = 0
            self._arm(BODY_S)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect nothing until the next request begins."""
        if self._is_refused:
            return
        self._disarm()
        self._is_in_headers, self._head_size = True, 0
        super().on_message_complete()

    def shutdown(self) -> None:
        """Have the application end its streams, too."""
        service: Any = self.app_state.get("service")
        if service is not None:
            service.drain()
        super().shutdown()

    def pause_writing(self) -> None:
        """Hear that the client takes less than is sent."""
        super().pause_writing()
        if self._taking is None:
            self._taking = self.loop.call_later(TAKE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Hear that it takes more again."""
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
        super().resume_writing()

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(seconds, self._note_late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _note_late(self) -> None:
        self._deadline = None
        if self.flow.read_paused:  # it is this side that is slow
            self._arm(BODY_S)
        else:
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        self._disarm()
        has_begun = (
            self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        )
        if not has_begun and not self.transport.is_closing():
            self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()
