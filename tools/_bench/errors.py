"""What may go wrong with a benchmark, so that a command can tell it in one line."""


class BenchError(Exception):
    """Raised when a benchmark cannot run, or fell short; the message is for people."""
