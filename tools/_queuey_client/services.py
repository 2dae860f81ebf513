"""What the tests of queuey-py call: three services with TLS on one store, in place of supervisor and nginx.

Owns the store, the keys and the certificates: all of them are temporary. The certificate of the third service
is one that no client trusts, as the tests want it.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

APPLICATION = "queuey"

_END_S = 30


class Services(NamedTuple):
    """What clients have to know.

    Attributes:
        ports: of the three.
        trusted: a file with the certificate of the first two.
    """

    key: str
    ports: tuple[int, ...]
    trusted: Path


def _cassq(*words: str) -> list[str]:
    return [sys.executable, "-c", "import cassq_command; cassq_command.main()", *words]


@contextmanager
def running(folder: Path) -> Iterator[Services]:
    """Start the services, and end them with the block."""
    url = f"sqlite:///{folder}/store.db"
    rights = "push,pop,look,steer"
    _ask(_cassq("--url", url, "application", "create", APPLICATION, "--rights", rights))
    key = _ask(_cassq("--url", url, "application", "key", "add", APPLICATION)).strip()
    trusted, other = _make_certificate(folder, "trusted"), _make_certificate(folder, "other")
    with ExitStack() as stack:
        ports = [stack.enter_context(_serving(url, each)) for each in (trusted, trusted, other)]
        yield Services(key, tuple(ports), trusted)


def _ask(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def _make_certificate(folder: Path, name: str) -> Path:
    made = folder / f"{name}.pem"
    _ask(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(made.with_suffix(".key")), "-out", str(made)),
        ]
    )
    return made


@contextmanager
def _serving(url: str, certificate: Path) -> Iterator[int]:
    """Start one service; yield its port."""
    tls = ["--tls-cert", str(certificate), "--tls-key", str(certificate.with_suffix(".key"))]
    process = subprocess.Popen(
        _cassq("--url", url, "serve", "--queuey", "--port", "0", *tls), stderr=subprocess.PIPE, text=True
    )
    try:
        said = process.stderr.readline() if process.stderr else ""
        found = re.search(r"serving at https://127\.0\.0\.1:(\d+)", said)
        if found is None:
            raise RuntimeError(f"a service does not begin: {said}")
        yield int(found[1])
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
