"""Whether the processes of a worker are well, for a supervisor that asks by HTTP."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import click


def serve(port: int, is_healthy: Callable[[], bool]) -> ThreadingHTTPServer:
    """Answer `GET /healthz` on a port with 200 or 503, in a thread, until it is shut down.

    Raises: UsageError: the port is taken, or may not be listened on.
    """

    class Answer(BaseHTTPRequestHandler):
        timeout = 5  # a connection that asks for nothing takes a thread and a file

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/healthz":
                self.send_error(404, "ask for /healthz")
                return
            is_well = is_healthy()
            body = b"ok\n" if is_well else b"not all processes work\n"
            self.send_response(200 if is_well else 503)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes come every few seconds."""

    try:
        server = ThreadingHTTPServer(("", port), Answer)
    except OSError as error:
        raise click.UsageError(f"--health-port {port}: {error.strerror}; name another one") from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="cassq-health", daemon=True).start()
    return server
