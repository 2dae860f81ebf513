"""`cassq bench`."""
