"""The lists of pipes of one queue, as tests look at them."""

from uuid import UUID

from cassq.model.shelf import Shelf
from cassq.storage.port import Storage


def listed(storage: Storage, shelf: Shelf, queue: str = "q") -> list[UUID]:
    """Return the pipes of one list."""
    return [entry.pipe for entry in storage.list_pipes(queue, shelf=shelf).entries]


def counts(storage: Storage, queue: str = "q") -> dict[Shelf, int]:
    """Return how many pipes each list has, but for the empty ones."""
    found = {shelf: len(listed(storage, shelf, queue)) for shelf in Shelf}
    return {shelf: count for shelf, count in found.items() if count}
