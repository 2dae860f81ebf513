"""The grammar of a store's URL.

Owns what may be written there and what it means. What must not break: a URL that is wrong is refused with a
word about what is right, before anything is opened; a password never shows in a message.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from cassq.errors import InvalidOptionError
from cassq.model.ids import check_name

EXAMPLES = "cassandra://host1,host2/keyspace?zookeeper=host1,host2, sqlite:///path/to/file.db or memory:"
CASSANDRA_PORT = 9042
ZOOKEEPER_PORT = 2181

_CASSANDRA_OPTIONS = {
    "zookeeper",
    "zookeeper_auth",
    "zookeeper_session",
    "datacenter",
    "tls",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "timeout",
    "username",
    "password",
}
_ENCODE = "options are NAME=VALUE[&NAME=VALUE…], special characters percent-encoded (%40 for @)"
_SQLITE_OPTIONS = {"durability"}


@dataclass(frozen=True, slots=True)
class CassandraTarget:
    """A `cassandra:` URL, taken apart."""

    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    username: str | None
    password: str | None
    datacenter: str | None
    tls: ssl.SSLContext | None
    timeout_s: float
    zookeeper: str | None
    zookeeper_auth: tuple[str, str] | None
    zookeeper_session_s: float

    @property
    def shown(self) -> str:
        """The URL without user and password."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"cassandra://{hosts}/{self.keyspace}"


def take_apart_cassandra(url: str, options: Mapping[str, str] | None = None) -> CassandraTarget:
    """Read a `cassandra:` URL.

    Raises:
        InvalidOptionError, InvalidNameError: it is malformed; the message says where.
    """
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        # Its words would quote what may be a part of a password.
        raise InvalidOptionError(f"{hide(url)!r} is malformed: {_ENCODE}; the form is {EXAMPLES}") from None
    if "@" in parts.path + parts.fragment + "".join(given):
        raise InvalidOptionError(f"{hide(url)!r} is malformed: {_ENCODE}")
    given |= dict(options or {})
    _check_options(given, _CASSANDRA_OPTIONS, url)
    user, _, hosts = parts.netloc.rpartition("@")
    username, _, password = user.partition(":")
    keyspace = parts.path.strip("/")
    if not hosts:
        raise InvalidOptionError(f"{hide(url)!r} names no host; the form is {EXAMPLES}")
    if not keyspace:
        raise InvalidOptionError(
            f"{hide(url)!r} names no keyspace; put it behind the hosts, for example /cassq"
        )
    auth = given.get("zookeeper_auth")
    if auth is not None and ":" not in auth:
        raise InvalidOptionError("zookeeper_auth must be USER:PASSWORD")
    zookeeper = given.get("zookeeper")
    return CassandraTarget(
        hosts=tuple(_address(each, CASSANDRA_PORT) for each in hosts.split(",")),
        keyspace=check_name(keyspace, "keyspace"),
        username=given.get("username") or unquote(username) or None,
        password=given.get("password") or unquote(password) or None,
        datacenter=given.get("datacenter"),
        tls=_tls(given),
        timeout_s=_seconds("timeout", given.get("timeout", "10")),
        zookeeper=None if zookeeper is None else _zookeeper_hosts(zookeeper),
        zookeeper_auth=None if auth is None else (auth.partition(":")[0], auth.partition(":")[2]),
        zookeeper_session_s=_seconds("zookeeper_session", given.get("zookeeper_session", "10")),
    )


def take_apart_sqlite(url: str, options: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """Read an `sqlite:` URL; return the file's path and the options.

    Raises:
        InvalidOptionError: it is malformed; the message says where.
    """
    location, _, query = url.partition("?")
    prefix = "sqlite:///"
    if not location.startswith(prefix) or not location.removeprefix(prefix):
        raise InvalidOptionError(
            f"{url!r} names no file: use sqlite:///relative.db or sqlite:////absolute/path.db"
        )
    try:
        given = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
        given |= dict(options or {})
    except ValueError as error:
        raise InvalidOptionError(f"{url!r} is malformed: {error}") from None
    _check_options(given, _SQLITE_OPTIONS, url)
    if given.get("durability", "full") not in {"full", "normal"}:
        raise InvalidOptionError(f"durability={given['durability']!r} must be 'full' or 'normal'")
    path = unquote(location.removeprefix(prefix))
    if Path(path).is_dir():
        raise InvalidOptionError(f"{path!r} is a folder; name a file")
    return path, given


def _check_options(given: Mapping[str, str], known: set[str], url: str) -> None:
    for name in given:
        if name not in known:
            raise InvalidOptionError(
                f"{name!r} is not an option of {hide(url)!r}; the options are {', '.join(sorted(known))}"
            )


def _address(text: str, default_port: int) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    if text.strip().startswith("[") and text.strip().endswith("]"):
        host, colon, port = text.strip(), "", ""
    if not colon:
        host, port = (host or port), str(default_port)
        host = text.strip() or ""
    host = host.strip("[]")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidOptionError(f"{text!r} is not HOST or HOST:PORT (port 1 to 65535)")
    return host, int(port)


def _zookeeper_hosts(text: str) -> str:
    """Return HOST:PORT[,HOST:PORT…][/CHROOT], with every port written out."""
    hosts, slash, chroot = text.partition("/")
    addresses = [_address(each, ZOOKEEPER_PORT) for each in hosts.split(",")]
    return ",".join(f"{host}:{port}" for host, port in addresses) + slash + chroot.rstrip("/")


def _tls(given: Mapping[str, str]) -> ssl.SSLContext | None:
    wanted = given.get("tls", "1" if "tls_ca" in given or "tls_cert" in given else "0")
    if wanted not in {"0", "1", "noverify"}:
        raise InvalidOptionError(f"tls={wanted!r} must be 0, 1 or noverify")
    if "tls_key" in given and "tls_cert" not in given:
        raise InvalidOptionError("tls_key is of no use without tls_cert, the certificate it belongs to")
    if wanted == "0":
        return None
    try:
        context = ssl.create_default_context(cafile=given.get("tls_ca"))
        if "tls_cert" in given:
            context.load_cert_chain(given["tls_cert"], given.get("tls_key"))
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(f"{name}={file!r}" for name, file in given.items() if name.startswith("tls_"))
        raise InvalidOptionError(f"the TLS files cannot be read ({files}): {error}") from error
    if wanted == "noverify":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.1 <= seconds <= timedelta(hours=1).total_seconds():
        raise InvalidOptionError(f"{name}={text!r} must be a number of seconds from 0.1 to 3600")
    return seconds


def check_text(url: object) -> str:
    """Return the URL when it is a str; raise `InvalidOptionError` otherwise."""
    if not isinstance(url, str):
        raise InvalidOptionError(f"the URL of a store is a str, not {type(url).__name__}; use {EXAMPLES}")
    return url


def hide(url: str) -> str:
    """Return the URL with everything cut out that is, or by a slip may be, user and password."""
    location, mark, query = url.partition("?")
    before, at, hosts = location.rpartition("@")
    if "@" in query and not at:
        before, hosts = location, "…"  # the ? may stand in a password
    if before and not url.startswith("sqlite:"):
        location = before[: before.find(":") + 1] + "//" + hosts
    return location if any(word in query for word in ("@", "password", "auth")) else location + mark + query
