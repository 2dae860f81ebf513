"""What the command asks of whatever runs the servers.

Owns the contract only; `plain.py` keeps it with Java processes, `containers.py` with Docker.
"""

from pathlib import Path
from typing import Protocol

from _services.state import Handle, Node, State


class Backend(Protocol):
    """Starts, stops and freezes single servers, and knows nothing of when they answer."""

    def check(self) -> None:
        """Raise MissingError when this machine lacks what starting takes."""
        ...

    def start(self, state: State, node: Node, previous: Handle | None) -> Handle:
        """Start one server over the data of its last run, and return without waiting."""
        ...

    def is_alive(self, handle: Handle) -> bool:
        """Return whether what was started still runs, or is frozen."""
        ...

    def is_frozen(self, handle: Handle) -> bool:
        """Return whether it is frozen."""
        ...

    def end(self, handle: Handle, *, kill: bool) -> None:
        """Stop it in order, or kill it; return when it is gone. Idempotent."""
        ...

    def freeze(self, handle: Handle) -> None:
        """Halt it where it is: connections stay open, nothing answers. Idempotent."""
        ...

    def thaw(self, handle: Handle) -> None:
        """Let it go on. Idempotent."""
        ...

    def remove(self, node: Node, handle: Handle | None) -> None:
        """Delete the data and logs of a server that has ended."""
        ...

    def directory(self, node: Node) -> Path | None:
        """Return where its data are, or None when they are not files of this machine."""
        ...

    def log(self, node: Node, handle: Handle) -> str:
        """Return where its output is: a file, or the command that shows it."""
        ...

    def last_words(self, node: Node, handle: Handle) -> str:
        """Return the end of its output, for whoever has to find out why it does not answer."""
        ...
