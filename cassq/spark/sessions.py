"""The store that a Spark process works with: one for each URL, opened where it is first needed.

Planners and executors are processes of their own, and Spark uses them again; what is opened here stays open
until the process ends. Nothing of it is ever pickled.
"""

from functools import lru_cache

import cassq


@lru_cache(maxsize=8)
def open_store(url: str) -> cassq.Store:
    """Return this process's open store of a URL.

    Raises: as `cassq.connect`.
    """
    return cassq.connect(url)
