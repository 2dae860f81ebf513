"""What systemd is told: that a service is ready, alive, and stopping.

Owns the one datagram of sd_notify(3). Does nothing where no supervisor listens.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send a state such as `READY=1` to the socket that NOTIFY_SOCKET names, if it names one.

    Returns: False where its reader has to be told again: it does not read as fast as it is told.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return True
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.setblocking(False)
        try:
            channel.sendto(state.encode(), address)
        except BlockingIOError:
            return False
    return True


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return how often to tell systemd that all is well: at half of its patience; None for not at all."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    if not microseconds.isdigit() or environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(microseconds) / 2e6
