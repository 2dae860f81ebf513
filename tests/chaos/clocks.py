"""Wall clocks of single processes, set by hand.

Owns the small library that workers are started with (`wall_clock.c`, built here), and the files that tell it
the time. Refuses to touch the clocks that count elapsed time: those cannot be set on a real machine either.
"""

import mmap
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

COMPILER = "cc"
_SOURCE = Path(__file__).with_name("wall_clock.c")
_NUMBER = struct.Struct("=q")


def has_compiler() -> bool:
    """Return whether the library can be built here."""
    return shutil.which(COMPILER) is not None


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a crew.

    Args:
        folder: where the files are.
        library: from `build`; without it every clock is the machine's.
    """

    folder: Path
    library: Path | None = None

    def environment(self, who: str) -> dict[str, str]:
        """Return what a process is started with, so that its clock can be set; it is right at first."""
        if self.library is None:
            return {}
        self._file(who).write_bytes(_NUMBER.pack(0))
        return {"LD_PRELOAD": str(self.library), "CASSQ_WALL_CLOCK": str(self._file(who))}

    def set(self, who: str, seconds: int) -> None:
        """Set a process's clock so many seconds ahead, at once."""
        with self._file(who).open("r+b") as file, mmap.mmap(file.fileno(), _NUMBER.size) as shared:
            shared[:] = _NUMBER.pack(seconds)

    def _file(self, who: str) -> Path:
        return self.folder / f"{who}.clock"


def build(folder: Path) -> Path:
    """Build the library."""
    library = folder / "wall_clock.so"
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library
