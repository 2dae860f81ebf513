"""What is closed at the end of a `with` block.

Owns the block. What must not break: however the block ends, `close` is called, and an error goes on.
"""

from abc import abstractmethod
from typing import Self


class ClosedByBlock:
    """Is closed when its `with` block ends."""

    @abstractmethod
    def close(self) -> None:
        """End; again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
