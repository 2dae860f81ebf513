"""HTTP/1.1 on a connection, with deadlines: uvicorn has none for what a client does not send.

Owns how slow and how large the parts of a request may be before anybody reads them. What must not break: a
client that stops, or is slow on purpose, holds a connection for seconds, not for ever; and nothing but its
own answer is written to a client whose request is under way.
"""

import asyncio
from collections import deque
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

#: The first line and the headers: all of them within so long, and no larger.
HEADERS_S = 10.0
HEADERS_BYTES_MAX = 64 * 1024

#: Of a body so much has to come in so long, or its end.
BODY_S = 10.0
BODY_BYTES = 64 * 1024

#: Of an answer that waits so much has to be taken in so long, or all of it.
TAKE_S = 30.0
TAKE_BYTES = 64 * 1024


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
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency:
            self._refuse(503)  # also one that sends nothing holds a file
        else:
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
            if self._deadline is None and not self._is_busy:
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

    def on_response_complete(self) -> None:
        """Expect the next request, unless what came behind this one was refused."""
        if self._is_refused:
            self.pipeline = deque(each for each in self.pipeline if not each[0].more_body)
            if not self.pipeline:
                self.transport.close()
        elif self._is_in_headers and self._head_size and self._deadline is None:
            self._arm(HEADERS_S)  # its beginning came meanwhile
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        if self._is_refused:
            return
        if not self._is_answering:
            super().send_400_response(msg)
        self._refuse(400)

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
            self._expect_taking()

    def _expect_taking(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._taking = self.loop.call_later(TAKE_S, self._check_taking, size - TAKE_BYTES)

    def _check_taking(self, most: int) -> None:
        if self.transport.get_write_buffer_size() > most:
            self.transport.abort()
        else:
            self._expect_taking()

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

    @property
    def _is_busy(self) -> bool:
        """Whether a request is under way: in its body, or at its answer."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_answering(self) -> bool:
        """Whether what is written now would be taken for the answer of a request that came whole."""
        if self.pipeline:
            return True
        return self._is_busy and (self.cycle.response_started or not self.cycle.more_body)

    def _note_late(self) -> None:
        self._deadline = None
        if self.flow.read_paused:  # it is this side that is slow
            self._arm(BODY_S)
        elif self._is_in_headers and not self._head_size:  # nothing came, so that nobody waits for an answer
            self._is_refused = True
            self.transport.close()
        else:
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        self._disarm()
        if self._is_answering:
            return  # the connection ends behind the answer
        if not self.transport.is_closing():
            self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()
