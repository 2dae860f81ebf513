"""`tools/queuey-client`: fetches queuey-py 0.2, starts services, runs its tests, and tells what came out.

Owns which of its tests are known not to pass, and why. Ends with 0 where these alone do not pass, with 1
where others do not either, and with 69 where the package cannot be fetched.
"""

import argparse
import importlib
import os
import sys
import tempfile
import unittest
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _queuey_client.services import Services, running
from _queuey_client.source import UnfetchedError, check_tools, convert, fetch

#: What a topic does not carry.
KNOWN = {
    "test_put": "it publishes under an id that the client chose; a topic gives ids itself, and answers 501",
}

UNAVAILABLE = 69

#: The ports of the tests, of which each gets one that is free, and their key.
_PORTS = (5001, 5002, 5003)
_KEY = "67e8107559e34fa48f91a746e775a751"


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description="Run the tests of queuey-py 0.2 against cassq serve --queuey."
    )
    parser.add_argument("--archive", type=Path, help="its sdist, where it is here already")
    archive: Path | None = parser.parse_args().archive
    with tempfile.TemporaryDirectory(prefix="queuey-client-") as name:
        folder = Path(name)
        try:
            check_tools()
            with running(folder) as services:
                convert(archive or fetch(folder), folder, _words(services))
                return _tell(_run(folder, services))
        except UnfetchedError as error:
            print(f"queuey-client: {error}", file=sys.stderr)
            return UNAVAILABLE


def _words(services: Services) -> dict[str, str]:
    """Return what is written in the tests, and what in its place: where and with which key they call."""
    ports = {f":{old}": f":{new}" for old, new in zip(_PORTS, services.ports, strict=True)}
    return {"/v1/queuey/": "/queuey/v1/queuey/", _KEY: services.key, **ports}


def _run(folder: Path, services: Services) -> unittest.TestResult:
    """Run the tests in this process."""
    sys.path.insert(0, str(folder))
    os.environ["REQUESTS_CA_BUNDLE"] = str(services.trusted)
    requests: Any = importlib.import_module("requests")

    def session(*, headers: dict[str, str], **_: object) -> Any:  # noqa: ANN401
        """Return a session as requests made it in 2012; what else it was told are its defaults today."""
        made = stack.enter_context(requests.Session())
        made.headers.update(headers)
        return made

    requests.session = session
    tests: Any = importlib.import_module("queuey_py.tests")
    tests.setup_supervisor = tests.ensure_process = lambda *_: None
    suite = unittest.defaultTestLoader.loadTestsFromModule(tests)
    with ExitStack() as stack:  # services end once nobody is connected
        return unittest.TextTestRunner(verbosity=2).run(suite)


def _tell(result: unittest.TestResult) -> int:
    """Say what came out; return what to end with."""
    failed = {
        each.id().rpartition(".")[2]: words.strip().splitlines()[-1]
        for each, words in [*result.failures, *result.errors]
    }
    print(f"{result.testsRun - len(failed)} of {result.testsRun} tests of queuey-py 0.2 pass")
    for name, words in failed.items():
        print(f"{name}: {KNOWN.get(name, f'not known why: {words}')}")
    for name in KNOWN.keys() - failed.keys():
        print(f"{name} passes, and is said not to")
    return 0 if failed.keys() == KNOWN.keys() else 1
