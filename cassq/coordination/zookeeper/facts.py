"""What `cassq doctor` wants to know of ZooKeeper's servers.

Owns asking each server by itself, with the four-letter word `srvr`; refuses to judge, and opens no session.
What must not break: a server that is silent costs a bounded time and is told as silent.
"""

import re
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

_VERSION = re.compile(r"ersion: (\d+(?:\.\d+)*)")
_MODE = re.compile(r"Mode: (\w+)")


@dataclass(frozen=True, slots=True)
class ZooKeeperServer:
    """One server.

    Attributes:
        version, mode: None where it does not tell; the mode is standalone, leader or follower.
        trouble: why it did not answer; None when it did.
    """

    address: str
    version: str | None = None
    mode: str | None = None
    trouble: str | None = None


def read_servers(addresses: Sequence[tuple[str, int]], timeout_s: float) -> list[ZooKeeperServer]:
    """Ask all servers at once; each step of a silent one takes `timeout_s` at most."""
    with ThreadPoolExecutor(len(addresses), thread_name_prefix="cassq-ask") as pool:
        return list(pool.map(lambda address: _ask(address[0], address[1], timeout_s), addresses))


def _ask(host: str, port: int, timeout_s: float) -> ZooKeeperServer:
    address = f"{host}:{port}"
    try:
        with closing(socket.create_connection((host, port), timeout_s)) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError as error:
        return ZooKeeperServer(address, trouble=str(error) or type(error).__name__)
    text = answer.decode("utf-8", "replace")
    version, mode = _VERSION.search(text), _MODE.search(text)
    return ZooKeeperServer(address, version[1] if version else None, mode[1] if mode else None)
