"""Waking another process of this machine, by a datagram to its loopback port.

Owns one UDP socket and the thread that listens on it. Refuses to know who is woken: what arrives is handed
on, and whoever gets it must expect nonsense. The rule that must not break: ringing never blocks and never
fails; a bell that is not heard is made good by polling.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_LOOPBACK = "127.0.0.1"
_PAYLOAD_BYTES_MAX = 64


class Doorbell:
    """A loopback socket to ring with, and to be rung at once `listen` was called.

    Args:
        on_ring: gets each payload, on the listening thread.
    """

    def __init__(self, on_ring: Callable[[bytes], None]) -> None:
        self._on_ring = on_ring
        self._lock = threading.RLock()
        self._socket: socket.socket | None = None
        self._listener: threading.Thread | None = None
        self._is_closed = False

    def listen(self) -> int:
        """Begin to listen, unless it was begun before; return the port to ring at.

        Raises:
            OSError: there is no port to be had.
        """
        with self._lock:
            bell = self._open()
            if self._listener is None:
                self._listener = threading.Thread(
                    target=self._hear, args=(bell,), name="cassq-bell", daemon=True
                )
                self._listener.start()
            return int(bell.getsockname()[1])

    def ring(self, port: int, payload: bytes) -> None:
        """Send a payload to whoever listens at `port`, if anybody does."""
        with suppress(OSError), self._lock:
            self._open().sendto(payload, (_LOOPBACK, port))

    def close(self) -> None:
        """Stop listening; may be called twice, and from the listening thread."""
        with self._lock:
            self._is_closed = True
            bell, self._socket = self._socket, None
        if bell is None:
            return
        if self._listener is not None and self._listener is not threading.current_thread():
            # A datagram to oneself: closing a socket does not wake the thread that reads it.
            with suppress(OSError):
                bell.sendto(b"", bell.getsockname())
            self._listener.join()
        bell.close()

    def _open(self) -> socket.socket:
        if self._is_closed:
            raise OSError("closed")
        if self._socket is None:
            bell = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                bell.bind((_LOOPBACK, 0))
            except OSError:
                bell.close()
                raise
            self._socket = bell
        return self._socket

    def _hear(self, bell: socket.socket) -> None:
        while not self._is_closed:
            try:
                payload = bell.recv(_PAYLOAD_BYTES_MAX)
            except OSError:
                # Closed from a callback on this thread; anything else a loopback socket does not report.
                return
            if payload and not self._is_closed:
                self._on_ring(payload)
