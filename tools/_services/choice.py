"""Which backend runs the servers: Docker or Java."""

from pathlib import Path

from _services.backend import Backend
from _services.errors import MissingError, MisuseError
from _services.plain import JavaBackend


def backend_named(name: str, directory: Path) -> Backend:
    """Return the backend that a directory's state names."""
    if name == "docker":
        from _services.containers import DockerBackend  # noqa: PLC0415 # Java needs no package

        return DockerBackend()
    return JavaBackend(directory)


def choose_backend(wish: str, directory: Path, *, ring: bool, tls: bool = False) -> tuple[str, Backend]:
    """Return the first backend that works here, with its name.

    Raises:
        MissingError: none does; says what to install.
        MisuseError: a ring, or TLS, was asked of Docker.
    """
    if ring and wish == "docker":
        raise MisuseError("a ring listens on three loopback addresses: it needs --with java")
    if tls and wish == "docker":
        raise MisuseError("TLS needs --with java")
    names = [wish] if wish != "auto" else ["java"] if ring or tls else ["docker", "java"]
    reasons = []
    for name in names:
        try:
            backend = backend_named(name, directory)
            backend.check()
        except MissingError as error:
            reasons.append(f"\n  with {name}: {error}")
        else:
            return name, backend
    raise MissingError("the servers cannot run here" + "".join(reasons))
