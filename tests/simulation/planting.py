"""How a bug is planted: a small patch to the library's own source, while it is imported.

Owns the patching. What must not break: a patch that does not fit the source any more fails loudly, and so
does one whose module was never imported.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fork_server import ForkServer

#: How pytest ends when a test has failed; it ends otherwise where none was run, or the bug was not there.
FAILED = 1

#: A test that takes longer hangs.
TEST_S = 120


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in one module; `old` stands there exactly once."""

    module: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug.

    Attributes:
        name: what is wrong, in a few words.
        edits: the patch.
        about: the theme of the histories that are to find it; empty for all.
        test: the test that is to find it instead, as pytest names it, from the project's root.
    """

    name: str
    edits: tuple[Edit, ...]
    about: str = ""
    test: str = ""

    @property
    def check(self) -> str:
        """What finds it: a test, or histories of a theme."""
        return self.test or (f"histories about {self.about}" if self.about else "histories")


class _PatchedLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from its patched source, past every cache."""

    def __init__(self, name: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str):  # type: ignore[no-untyped-def]
        source = self.get_data(self.path).decode()
        for edit in self._edits:
            if source.count(edit.old) != 1:
                raise ValueError(
                    f"{fullname}: the patch finds {source.count(edit.old)} places, not one: {edit.old!r}"
                )
            source = source.replace(edit.old, edit.new)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Planter(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        edits = [edit for edit in self._mutant.edits if edit.module == fullname]
        if not edits:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None:
            raise ImportError(f"{fullname} is not there to be patched")
        return importlib.util.spec_from_loader(fullname, _PatchedLoader(fullname, found.origin, edits))


def plant(mutant: Mutant) -> None:
    """Patch the library, which must not have been imported yet."""
    known = [edit.module for edit in mutant.edits if edit.module in sys.modules]
    if known:
        raise ImportError(f"{known} were imported already")
    sys.meta_path.insert(0, _Planter(mutant))


def check_planted(mutant: Mutant) -> None:
    """Raise ImportError unless every patched module was imported."""
    missing = [edit.module for edit in mutant.edits if edit.module not in sys.modules]
    if missing:
        raise ImportError(f"{missing} were never imported: the mutant {mutant.name!r} is not there")


def planted(name: str, module: str, old: str, new: str, about: str = "", test: str = "") -> Mutant:
    """Return a bug of one edit."""
    return Mutant(name, (Edit(module, old, new),), about, test)


def run_test(mutant: Mutant, server: "ForkServer") -> "subprocess.CompletedProcess[str]":
    """Run a mutant's test in a fresh process, with the mutant planted; it has to end in `FAILED`."""
    words = [
        "-qx",
        "--no-header",
        "--tb=native",
        "-p",
        "no:cacheprovider",
        "-p",
        "planted_plugin",
        mutant.test,
    ]
    return server.run("pytest", words, planted=mutant.name, timeout_s=TEST_S)
