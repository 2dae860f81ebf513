"""The source of queuey-py 0.2: fetched, and made to run on Python 3.

Owns what is changed of it. It is of 2012, and for Python 2: `lib2to3` rewrites it, and what that does not
know is rewritten here. What must not break: what is run is the file that was looked at, by its hash; and no
test is left out or made easier.
"""

import importlib
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REQUIREMENT = "queuey-py==0.2 --hash=sha256:a67a64170dfe891b115caf03c9260e9c32de39404badaa0e8f974281d31dfa17"
_FOLDER = "queuey-py-0.2/queuey_py"
_FILES = ("__init__.py", "client.py", "tests.py")

#: Modules that the client wants and that need not be there: they have what it calls of them.
_STANDINS = {
    "ujson.py": "from json import dumps as encode, loads as decode\n",
    "mock.py": "from unittest.mock import *\n",
}

#: In Python 2 a bare `raise` behind a loop raised what had been caught in it.
_BARE_RAISE = {
    "            except Timeout:\n                pass\n": (
        "            except Timeout as error:\n                late = error\n"
    ),
    "        # raise timeout after all\n        raise\n": "        raise late\n",
}


class UnfetchedError(Exception):
    """Raised when the package, or what converts it, is not to be had here."""


def check_tools() -> None:
    """Check that what is needed besides is here.

    Raises: UnfetchedError: it is not.
    """
    if shutil.which("openssl") is None:
        raise UnfetchedError("openssl is not here, which makes certificates")
    if importlib.util.find_spec("requests") is None:
        raise UnfetchedError("requests is not here, by which the client speaks: pip install requests")
    _tool()


def fetch(folder: Path) -> Path:
    """Download the package; return its archive.

    Raises: UnfetchedError: it cannot be.
    """
    wanted = folder / "requirement.txt"
    wanted.write_text(REQUIREMENT, "utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "queuey-py"]
    done = subprocess.run(
        [*command, "--dest", str(folder), "--requirement", str(wanted)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = next(folder.glob("queuey*py-0.2.*"), None)
    if done.returncode or found is None:
        raise UnfetchedError(f"queuey-py 0.2 cannot be fetched: {done.stderr.strip()[-500:]}")
    return found


def convert(archive: Path, folder: Path, words: Mapping[str, str]) -> None:
    """Write the package for Python 3 into a folder, with some words in the place of others.

    Raises: UnfetchedError: nothing is here that converts it.
    """
    tool = _tool()
    own = folder / "queuey_py"
    own.mkdir()
    for name in _FILES:
        with zipfile.ZipFile(archive) as packed:
            text = packed.read(f"{_FOLDER}/{name}").decode()
        text = str(tool.refactor_string(text, name))
        for old, new in {**_BARE_RAISE, **words}.items():
            text = text.replace(old, new)
        (own / name).write_text(text, "utf-8")
    for name, text in _STANDINS.items():
        (folder / name).write_text(text, "utf-8")


def _tool() -> Any:  # noqa: ANN401 - Python has no types for it any more
    for name in ("lib2to3", "fissix"):
        try:
            refactor = importlib.import_module(f"{name}.refactor")
        except ImportError:
            continue
        return refactor.RefactoringTool(refactor.get_fixers_from_package(f"{name}.fixes"))
    raise UnfetchedError("Python 2 cannot be converted: pip install fissix, or take Python 3.11 or 3.12")
