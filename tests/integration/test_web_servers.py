"""The application of the page on web applications, below a server that forks."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from support.patience import until

import cassq

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-in-a-web-application.md"


def wsgi_module():
    """Return the page's Django application, which is its last example."""
    code = PAGE.read_text("utf-8").rpartition("```python\n")[2].partition("```")[0]
    return code.partition("def test_")[0]


@pytest.mark.parametrize("preload", [[], ["--preload"]])
def test_each_process_of_gunicorn_connects_and_closes_by_itself(tmp_path, preload):
    (tmp_path / "shop.py").write_text(wsgi_module())
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    url = f"sqlite:///{tmp_path}/orders.db"
    command = [sys.executable, "-m", "gunicorn", "--workers", "3", "--bind", f"127.0.0.1:{port}", *preload]
    server = subprocess.Popen(
        [*command, "shop:application"],
        cwd=tmp_path,
        env={**os.environ, "CASSQ_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )

    def order(body):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/orders", body, timeout=60) as answer:
                return answer.status == 202
        except OSError:
            return False

    with server, cassq.connect(url) as store:
        until(lambda: order(b"0"))
        assert all(order(b"%d" % number) for number in range(1, 30))
        queue = store.queue("orders")
        pushers = {pipe.pusher for pipe in queue.pipes()}
        server.send_signal(signal.SIGTERM)
        _, told = server.communicate(timeout=120)
        assert server.returncode == 0, told
        assert queue.stats().waiting == 30
        assert {pipe.phase for pipe in queue.pipes()} == {"PF"}
        assert pushers
        assert "Traceback" not in told
