"""Figures, looks and dead letters of a queue."""
