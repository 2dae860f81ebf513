"""A queue and a popper of it, on every store."""

import pytest


@pytest.fixture
def queue(store, name):
    """An empty queue."""
    return store.queue(name)


@pytest.fixture
def popper(queue):
    """An open popper of `queue`."""
    with queue.popper() as opened:
        yield opened
