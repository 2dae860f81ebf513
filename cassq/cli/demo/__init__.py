"""`cassq demo`."""
