"""Whether the processes of a worker are well, for a supervisor that asks by HTTP."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def serve(port: int, is_healthy: Callable[[], bool]) -> ThreadingHTTPServer:
    """Answer `GET /healthz` on a port with 200 or 503, in a thread, until it is shut down."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/healthz":
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

    server = ThreadingHTTPServer(("", port), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="cassq-health", daemon=True).start()
    return server
