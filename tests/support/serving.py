"""A real `cassq serve` in processes of its own, and clients for it."""

import re
import socket
import ssl

import httpx
from command_line import CommandLine
from support.patience import until

import cassq
from cassq.gate import Application, Applications, Right

WAIT_S = 30.0
ALL = frozenset({Right.PUSH, Right.POP, Right.LOOK, Right.STEER})


UNAUTHORIZED = 401


def keys_of(url, *names, rights=ALL, **options):
    """Create applications; return a key of each."""
    with cassq.connect(url) as store:
        applications = Applications(store.storage)
        for name in names:
            applications.create(Application(name, frozenset(rights), **options))
        return [str(applications.add_key(name)) for name in names]


class Serving:
    """A service over one store, at a port that was free.

    Attributes:
        words: what it said.
    """

    def __init__(self, url, *options):
        self.url = url
        self.process = CommandLine(url).start("serve", "--port", 0, *options)
        self.words = []
        try:
            self._find_place()
        except BaseException:
            self.end()
            raise

    def _find_place(self):
        place = self.say(r"serving at ([^\s\"]+)")
        self.base = place
        self.uds = place.removeprefix("unix:") if place.startswith("unix:") else None
        self.port = int(place.rpartition(":")[2]) if self.uds is None else None
        self._wait_ready()

    def say(self, pattern):
        while line := self.process.stderr.readline().decode():
            self.words.append(line)
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(f"it ended, and said {self.words}")

    def _wait_ready(self):
        # A socket that listens takes connections before the process is ready to answer them.
        with self.client(None, verify=False) as client:
            assert client.get("/healthz").status_code == 200

    def key(self, name, rights=ALL, **options):
        """Return a key of a new application, once the service knows it."""
        (key,) = keys_of(self.url, name, rights=rights, **options)
        with self.client(key) as client:
            until(lambda: client.get("/v1/queues").status_code != UNAUTHORIZED)
        return key

    def applications(self, call):
        """Change applications in another process's way."""
        with cassq.connect(self.url) as store:
            return call(Applications(store.storage))

    def client(self, key, **options):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        base, transport = self.base, None
        if self.uds:
            base, transport = "http://socket", httpx.HTTPTransport(uds=self.uds)
        elif "verify" in options and self.base.startswith("https"):
            options["verify"] = ssl._create_unverified_context()
        return httpx.Client(base_url=base, headers=headers, timeout=WAIT_S, transport=transport, **options)

    def connect(self):
        """Return a raw socket."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def stop(self, number):
        self.process.send_signal(number)
        _, words = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, "".join(self.words) + words.decode()

    def end(self):
        self.process.kill()
        with self.process:  # closes its pipes
            pass
