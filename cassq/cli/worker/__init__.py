"""`cassq worker`: processes that run a worker, and one that watches them."""
