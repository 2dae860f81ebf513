"""What can go wrong with the services, and the exit code that says so."""

from typing import ClassVar


class ServicesError(Exception):
    """Raised when a service could not be started, stopped or reached."""

    exit_code: ClassVar[int] = 1


class MisuseError(ServicesError):
    """Raised when what was asked contradicts what the directory holds."""

    exit_code = 64


class MissingError(ServicesError):
    """Raised when a program this machine would need is not installed."""

    exit_code = 69
