"""The processes of the service: where they listen, and how they end.

Owns what uvicorn is told. What must not break: where the address cannot be used, nothing begins.
"""

import resource
import socket
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvicorn
from uvicorn.supervisors.multiprocess import Multiprocess

from cassq.errors import InvalidOptionError
from cassq.http.app import Opening, make_app
from cassq.http.protocol import DeadlineProtocol

#: So many connections a process has at most; those beyond it are answered 503.
CONNECTIONS_MAX = 20_000

#: So many that connect wait to be taken.
BACKLOG = 2048

#: What else it has open: connections of the database, sockets, files.
FILES_BESIDE = 500


@dataclass(frozen=True, slots=True)
class Listening:
    """Where and how to listen.

    Attributes:
        uds: the path of a Unix socket, in the place of host and port.
        client_ca: of those whose certificates clients must have.
        grace_s: requests that are under way at the end have so long.
    """

    host: str = "127.0.0.1"
    port: int = 8520
    uds: str | None = None
    processes: int = 1
    tls_cert: str | None = None
    tls_key: str | None = None
    client_ca: str | None = None
    grace_s: int = 20

    def bind(self) -> socket.socket:
        """Return a socket that listens.

        Raises: InvalidOptionError: the address cannot be used.
        """
        try:
            if self.uds is not None:
                _remove_stale(self.uds)
                bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                bound.bind(self.uds)
                bound.listen(BACKLOG)  # who is told that it serves may connect at once
            else:
                family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
                bound = socket.create_server((self.host, self.port), family=family, backlog=BACKLOG)
        except OSError as error:
            where = self.uds or f"{self.host}:{self.port}"
            raise InvalidOptionError(
                f"{where} cannot be listened at ({error.strerror or error}): choose another"
            ) from None
        bound.set_inheritable(True)
        return bound

    def where(self, bound: socket.socket) -> str:
        """Return the URL of a socket that was bound."""
        if self.uds is not None:
            return f"unix:{self.uds}"
        host, port = bound.getsockname()[:2]
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _remove_stale(path: str) -> None:
    """Remove a socket at which nobody listens any more."""
    if Path(path).is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                Path(path).unlink(missing_ok=True)


def run(opening: Opening, listening: Listening, bound: socket.socket) -> None:
    """Serve until a signal."""
    connections_max = raise_files()
    config = uvicorn.Config(
        partial(make_app, opening),
        factory=True,
        http=DeadlineProtocol,
        ws="none",
        lifespan="on",
        workers=listening.processes,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        limit_concurrency=connections_max,
        timeout_graceful_shutdown=listening.grace_s,
        ssl_certfile=listening.tls_cert,
        ssl_keyfile=listening.tls_key,
        ssl_ca_certs=listening.client_ca,
        ssl_cert_reqs=ssl.CERT_REQUIRED if listening.client_ca else ssl.CERT_NONE,
    )
    try:
        if listening.processes == 1:
            uvicorn.Server(config).run(sockets=[bound])
        else:
            Multiprocess(config, sockets=[bound]).run()
    finally:  # a signal is told once more at the end
        bound.close()
        _remove(listening)


def raise_files() -> int:
    """Have this process, and those it starts, open more files; return how many connections that allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + FILES_BESIDE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, max(soft - FILES_BESIDE, soft // 2))


def _remove(listening: Listening) -> None:
    if listening.uds is not None:
        Path(listening.uds).unlink(missing_ok=True)
