"""Servers from Debian's packages, without installing them.

Owns finding a program on the PATH, and where it is missing unpacking its packages into the project's cache.
Refuses to install anything, because installing a server starts it. The rule: a cache is whole or not there.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from _bench.errors import BenchError

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".tools" / "rivals"

# Every program here already runs on those of this machine; a second C library beside the first crashes it.
_OF_THE_SYSTEM = re.compile(r"libc6|libc-|libgcc|libstdc\+\+|libcrypt1|libllvm|libperl|libelogind")
_ONLY_WHAT_IT_NEEDS = [
    f"--no-{each}" for each in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
]


@dataclass(frozen=True, slots=True)
class Found:
    """A program, and what its environment needs so that it runs.

    Attributes:
        path: of the program.
        root: what its packages were unpacked into; `/` when it is installed.
        environment: variables that it needs.
    """

    path: Path
    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=dict)


def find(program: str, package: str, *, place: str = "", kin: str = "") -> Found:
    """Return a program, from this machine or unpacked from its package.

    Args:
        program: its file name.
        package: the Debian package that has it.
        place: the folder where packages put it, as a pattern, where that is none of the PATH.
        kin: other packages whose names begin so are needed too; libraries always are.

    Raises:
        BenchError: it is neither installed nor to be had; says what to install.
    """
    installed = (_last(Path("/"), place, program) if place else None) or shutil.which(program)
    if installed:
        return Found(Path(installed))
    root = CACHE / package
    if not root.exists():
        _unpack(package, kin or package, root)
    path = _last(root, place or "usr/bin", program)
    if path is None:
        raise _missing(program, package)
    return Found(path, root, _libraries(root))


def _last(root: Path, place: str, program: str) -> Path | None:
    """Return the program from the newest of the folders that match."""
    found = sorted(root.glob(f"{place}/{program}"))
    return found[-1] if found else None


def _libraries(root: Path) -> dict[str, str]:
    folders = [str(each) for pattern in ("usr/lib/*-linux-*", "lib/*-linux-*") for each in root.glob(pattern)]
    given = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join([*folders, *([given] if given else [])])} if folders else {}


def _missing(program: str, package: str) -> BenchError:
    return BenchError(f"{program} is needed: on Debian and Ubuntu, apt-get install {package}")


def _unpack(package: str, kin: str, root: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise _missing(package, package)
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as name:
        # The user as whom servers run that refuse to be root has to reach it too.
        draft = Path(name, "root")
        draft.mkdir(mode=0o755)
        for archive in _download(package, kin, Path(name)):
            subprocess.run(["dpkg", "-x", archive, draft], check=True)
        draft.replace(root)


def _download(package: str, kin: str, folder: Path) -> list[Path]:
    for preparation in ([], ["apt-get", "update"]):
        if preparation:
            subprocess.run(preparation, check=False, capture_output=True)
        names = _needed(package, kin)
        if not names:
            continue
        done = subprocess.run(["apt-get", "download", *names], cwd=folder, check=False, capture_output=True)
        if done.returncode == 0:
            return sorted(folder.glob("*.deb"))
    raise _missing(package, package)


def _needed(package: str, kin: str) -> list[str]:
    """Return the packages that this one needs and that are not installed."""
    needs = _dependencies(package)
    wanted, seen = [package], {package}
    for name in wanted:
        # Neither past nor into what only an installation needs, such as users and services.
        more = [each for each in needs.get(name, ()) if each.startswith((kin, package, "lib"))]
        wanted += [each for each in more if each not in seen and not _OF_THE_SYSTEM.match(each)]
        seen.update(more)
    return sorted(name for name in wanted if name in needs and not _is_installed(name))


def _dependencies(package: str) -> dict[str, list[str]]:
    """Return what each package needs that this one needs, itself included."""
    asked = subprocess.run(
        ["apt-cache", "depends", "--recurse", *_ONLY_WHAT_IT_NEEDS, package],
        check=False,
        capture_output=True,
        text=True,
    )
    needs: dict[str, list[str]] = {}
    own: list[str] = []
    for line in asked.stdout.splitlines():
        # A package stands at the beginning of its line, what it needs behind a word, alternatives below that.
        if not line.startswith((" ", "|")):
            own = needs.setdefault(line, [])
        else:
            own.append(line.rpartition(" ")[2])
    return needs


def _is_installed(package: str) -> bool:
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.returncode == 0 and done.stdout == "installed"
