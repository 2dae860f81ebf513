"""`cassq doctor`."""
