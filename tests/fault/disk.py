"""A disk that fails, and one that loses power: the library of `disk.c`, and the processes that run under it.

Owns the library, the process that plays trials, and the files that a power cut may leave. Refuses to judge
what is found in them. What must not break: an image holds every byte that was synced and every name whose
folder was, and of the rest only what was written.
"""

import errno
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

COMPILER = "cc"
_SOURCE = Path(__file__).with_name("disk.c")
_TRIALS = Path(__file__).with_name("disk_trials.py")
_HEAD = struct.Struct("=IIQQQ")

#: What a call does, and what becomes of one that is struck, as `disk.c` has them.
WRITE, SYNC, SIZE, NAME = 1, 2, 4, 8
KILL, TEAR_AND_KILL, FAIL, SHORT_AND_FAIL = 1, 2, 3, 4

#: What SQLite maps into memory and makes anew.
_MAPPED = "-shm"


def has_compiler() -> bool:
    """Return whether the library can be built here."""
    return shutil.which(COMPILER) is not None


def build(folder: Path) -> Path:
    """Build the library."""
    library = folder / "disk.so"
    command = [
        COMPILER,
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-o",
        str(library),
        str(_SOURCE),
        "-ldl",
    ]
    subprocess.run(command, check=True)
    return library


@dataclass(frozen=True, slots=True)
class Fault:
    """What strikes the calls of some kinds.

    Attributes:
        kinds: WRITE, SYNC, SIZE (a file is cut or grown), NAME (it is made or removed), or several of them.
        action: what becomes of the call.
        error: with which error it fails.
        is_lasting: whether all later ones fail, too.
    """

    kinds: int
    action: int
    error: int = errno.EIO
    is_lasting: bool = False

    def at(self, nth: int) -> list[int]:
        """Return what arms the library, so that the nth call is struck."""
        return [self.kinds, nth, self.action, self.error, int(self.is_lasting)]


class Trials:
    """The process that plays trials, one after the other, each on files of its own.

    Attributes:
        disk: the folder under the library's eyes.
        notes: where ledgers and records are.
    """

    def __init__(self, folder: Path) -> None:
        self.disk, self.notes = folder / "disk", folder / "notes"
        for each in (self.disk, self.notes):
            each.mkdir()
        self._made = 0
        self._boot = self.notes / "boot_id"
        preloaded = {"CASSQ_DISK": str(self.disk), "LD_PRELOAD": str(build(folder))}
        self._process = subprocess.Popen(
            [sys.executable, str(_TRIALS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **preloaded},
        )

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, **request: Any) -> Any:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def new_folder(self) -> Path:
        """Return an empty folder on the disk."""
        self._made += 1
        made = self.disk / f"{self._made}"
        made.mkdir()
        return made

    def examine(self, folder: Path, scene: str, after: Iterable[Path]) -> tuple[Any, Path]:
        """Have a process look at the files of a folder, on a machine that was started anew.

        Args:
            scene, after: what was played on them, and the ledgers of that.

        Returns: what it answers, and its ledger.
        """
        self._boot.write_text(f"{uuid4()}\n", encoding="ascii")
        found = self.notes / f"{folder.name}.found"
        url = f"sqlite:///{folder}/store.db"
        given = {
            "url": url,
            "found": str(found),
            "boot": str(self._boot),
            "scene": scene,
            "after": [*map(str, after)],
        }
        return self.ask(examine=given)["found"], found


# -- the record of a disk, and what a power cut leaves of it ---------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a file, a sync, or a note."""

    kind: str
    path: str
    inode: int
    offset: int
    data: bytes


def read_record(path: Path) -> Iterator[Event]:
    """Yield what happened on a disk, in its order."""
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            kind, path_length, inode, offset, length = _HEAD.unpack(head)
            yield Event(chr(kind), file.read(path_length).decode(), inode, offset, file.read(length))


#: Takes the place of a change among those that are not synced, and of a sector in it; is it kept?
Keeps = Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Cut:
    """What a power cut keeps of that which was not synced.

    Attributes:
        sector: bytes that are kept or lost together; 0 for whole writes.
        names: the same for files that were made and removed.
    """

    keeps: Keeps
    names: Keeps
    sector: int = 0


def _nothing(change: int, sector: int) -> bool:
    return False


def _everything(change: int, sector: int) -> bool:
    return True


def _even(change: int, sector: int) -> bool:
    return (change + sector) % 2 == 0


def _odd(change: int, sector: int) -> bool:
    return not _even(change, sector)


def _scattered(change: int, sector: int) -> bool:
    return hashlib.blake2b(b"%d %d" % (change, sector)).digest()[0] % 2 == 0


CUTS = {
    "nothing": Cut(_nothing, _nothing),
    "everything": Cut(_everything, _everything),
    "every other write": Cut(_even, _even),
    "the other writes": Cut(_odd, _odd),
    "every other 512 bytes": Cut(_even, _everything, 512),
    "the other 512 bytes": Cut(_odd, _everything, 512),
    "some 512 bytes": Cut(_scattered, _scattered, 512),
    "some 4096 bytes": Cut(_scattered, _scattered, 4096),
    "all data, no names": Cut(_everything, _nothing),
    "all names, no data": Cut(_nothing, _everything),
}


@dataclass(slots=True)
class _File:
    synced: bytes = b""
    pending: list[Event] = field(default_factory=list)

    def after(self, cut: Cut) -> bytes:
        """Return what is left of it."""
        content = bytearray(self.synced)
        for place, event in enumerate(self.pending):
            if event.kind == "T":
                if cut.keeps(place, 0):
                    del content[event.offset :]
                    content.extend(bytes(event.offset - len(content)))
                continue
            for number, start, part in _sectors(event, cut.sector):
                if cut.keeps(place, number):
                    content.extend(bytes(max(0, start - len(content))))
                    content[start : start + len(part)] = part
        return bytes(content)


def _sectors(event: Event, size: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield the parts of a write that are kept or lost together: number, offset, bytes."""
    start, end = event.offset, event.offset + len(event.data)
    while start < end:
        number = start // size if size else 0
        until = min(end, (number + 1) * size) if size else end
        yield number, start, event.data[start - event.offset : until - event.offset]
        start = until


class PoweredDisk:
    """A disk while a record is played on it."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._names: dict[str, _File] = {}
        self._pending: list[tuple[str, _File | None]] = []

    def play(self, event: Event) -> None:
        """Change what the event changed."""
        match event.kind:
            case "C":
                self._files[event.inode] = _File()
                self._pending.append((event.path, self._files[event.inode]))
            case "U":
                self._pending.append((event.path, None))
            case "W" | "T":
                self._files[event.inode].pending.append(event)
            case "S":
                self._sync(event)

    def _sync(self, event: Event) -> None:
        file = self._files.get(event.inode)
        if file:
            file.synced, file.pending = file.after(CUTS["everything"]), []
        else:
            # cassq's folders have no folders in them, so all names are of the one that is synced.
            self._names, self._pending = self._named(_everything), []

    def _named(self, keeps: Keeps) -> dict[str, _File]:
        names = dict(self._names)
        for place, (path, file) in enumerate(self._pending):
            if keeps(place, 0):
                names.pop(path, None)
                if file:
                    names[path] = file
        return names

    def after(self, cut: Cut) -> dict[str, bytes]:
        """Return the files that are left, by name."""
        named = self._named(cut.names).items()
        return {Path(path).name: file.after(cut) for path, file in named if not path.endswith(_MAPPED)}


def digest_of(image: Mapping[str, bytes]) -> bytes:
    """Return what two images have in common only if they are the same."""
    digest = hashlib.blake2b()
    for name, content in sorted(image.items()):
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.digest()
