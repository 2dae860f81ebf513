"""The grammar of a store's URL.

Owns what may be written there and what it means. What must not break: a URL that is wrong is refused with a
word about what is right, before anything is opened; a password never shows in a message.
"""

import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import parse_qsl, unquote

from cassq.errors import InvalidOptionError
from cassq.model.arguments import check_between
from cassq.model.ids import check_name, shorten

EXAMPLES = "cassandra://host1,host2/keyspace?zookeeper=host1,host2, sqlite:///path/to/file.db or memory:"
CASSANDRA_PORT = 9042
ZOOKEEPER_PORT = 2181

_ENCODE = "options are NAME=VALUE[&NAME=VALUE…], special characters percent-encoded (%40 for @)"
_MODE = re.compile(r"0?6[0-7]{2}")
_NUMBERS = {"timeout", "zookeeper_session"}

# HOST, HOST:PORT or [IPV6]:PORT; without brackets nobody can tell an IPv6 address from a port.
_ADDRESS = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s:@\[\]/?#]+))(?::(?P<port>[0-9]{1,5}))?"
)

# Several hosts, some of them in brackets, are a malformed host to urllib's urlsplit since Python 3.13.2,
# and to earlier ones that got the same repair.
_FORM = re.compile(r"cassandra://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?")

# What urllib drops from a URL without a word.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")

#: An error shows at most so much of a URL.
_SHOWN_MAX = 100


class _CassandraOptions(TypedDict, total=False):
    zookeeper: str
    zookeeper_auth: str
    zookeeper_session: str | float | timedelta
    datacenter: str
    tls: str
    tls_ca: str
    tls_cert: str
    tls_key: str
    timeout: str | float | timedelta
    username: str
    password: str


class _SqliteOptions(TypedDict, total=False):
    durability: str
    mode: str


class StoreOptions(_CassandraOptions, _SqliteOptions, total=False):
    """The options of a URL as `cassq.connect` takes them, for type checkers."""


@dataclass(frozen=True, slots=True)
class CassandraTarget:
    """A `cassandra:` URL, taken apart."""

    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    username: str | None
    password: str | None = field(repr=False)
    datacenter: str | None
    tls: ssl.SSLContext | None
    timeout_s: float
    zookeeper: str | None
    zookeeper_auth: tuple[str, str] | None = field(repr=False)
    zookeeper_session_s: float

    @property
    def shown(self) -> str:
        """The URL without user and password."""
        return f"cassandra://{_join(self.hosts)}/{self.keyspace}"


def take_apart_cassandra(url: str, options: Mapping[str, object] | None = None) -> CassandraTarget:
    """Read a `cassandra:` URL.

    Raises:
        InvalidOptionError, InvalidNameError: it is malformed; the message says where.
    """
    parts = _FORM.fullmatch(url)
    if not parts or "@" in parts["path"] + (parts["query"] or "") or _UNPRINTABLE.search(url):
        raise _malformed(url)
    user, _, hosts = parts["authority"].rpartition("@")
    try:
        username, password = (unquote(part, errors="strict") for part in user.partition(":")[::2])
    except ValueError:
        # Its words would quote what may be a part of a password.
        raise _malformed(url) from None
    given = _options(url, parts["query"] or "", options, set(_CassandraOptions.__annotations__))
    keyspace = parts["path"].strip("/")
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
        username=given.get("username") or username or None,
        password=given.get("password") or password or None,
        datacenter=given.get("datacenter"),
        tls=_tls(given),
        timeout_s=_seconds("timeout", given.get("timeout", "10")),
        zookeeper=None if zookeeper is None else _zookeeper_hosts(zookeeper),
        zookeeper_auth=None if auth is None else (auth.partition(":")[0], auth.partition(":")[2]),
        zookeeper_session_s=_seconds("zookeeper_session", given.get("zookeeper_session", "10")),
    )


def take_apart_sqlite(url: str, options: Mapping[str, object] | None = None) -> tuple[str, dict[str, str]]:
    """Read an `sqlite:` URL; return the file's path and the options.

    Raises:
        InvalidOptionError: it is malformed; the message says where.
    """
    location, _, query = url.partition("?")
    prefix = "sqlite:///"
    if not location.startswith(prefix) or not location.removeprefix(prefix):
        raise InvalidOptionError(
            f"{hide(url)!r} names no file: use sqlite:///relative.db or sqlite:////absolute/path.db"
        )
    given = _options(url, query, options, set(_SqliteOptions.__annotations__))
    if given.get("durability", "full") not in {"full", "normal"}:
        raise InvalidOptionError(f"durability={shorten(given['durability'])} must be 'full' or 'normal'")
    if not _MODE.fullmatch(given.get("mode", "0600")):
        raise InvalidOptionError(
            f"mode={shorten(given['mode'])} is not the mode of a file that its owner reads and writes: use "
            "0600, 0660 for a group, or 0666"
        )
    return _path(location.removeprefix(prefix)), given


def _path(encoded: str) -> str:
    try:
        path = unquote(encoded, errors="strict")
        path.encode()
        is_folder = Path(path).is_dir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error.__class__.__name__
        raise InvalidOptionError(f"{shorten(encoded)} cannot be the name of a file: {reason}") from error
    if is_folder:
        raise InvalidOptionError(f"{shorten(path)} is a folder; name a file")
    if "\0" in path or path == ":memory:":
        raise InvalidOptionError(f"{shorten(path)} is not the name of a file (a store in memory is memory:)")
    return path


def _options(url: str, query: str, options: Mapping[str, object] | None, known: set[str]) -> dict[str, Any]:
    """Return the options of the URL and those beside it, which win."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise _malformed(url) from None
    given: dict[str, object] = dict(pairs)
    if len(given) < len(pairs):
        raise InvalidOptionError(f"an option stands twice in {hide(url)!r}")
    given |= dict(options or {})
    for name, value in given.items():
        if name not in known:
            raise InvalidOptionError(
                f"{shorten(name)} is not an option of {hide(url)!r}; "
                f"the options are {', '.join(sorted(known))}"
            )
        if not isinstance(value, str) and name not in _NUMBERS:
            raise InvalidOptionError(f"the option {name} is a str, not {type(value).__name__}")
    return given


def _malformed(url: str) -> InvalidOptionError:
    return InvalidOptionError(f"{hide(url)!r} is malformed: {_ENCODE}; the form is {EXAMPLES}")


def _address(text: str, default_port: int) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text.strip())
    port = int(match["port"] or default_port) if match else 0
    if match is None or not 0 < port < 65536 or not _is_ipv6(match["ipv6"] or "::"):
        # In front of an @ there may be a password.
        raise InvalidOptionError(
            f"{shorten(text.rpartition('@')[2])} is not HOST or HOST:PORT (port 1 to 65535; "
            "an IPv6 address in brackets)"
        )
    return match["ipv6"] or match["host"], port


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _join(addresses: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


def _zookeeper_hosts(text: str) -> str:
    """Return HOST:PORT[,HOST:PORT…][/CHROOT], with every port written out."""
    hosts, slash, chroot = text.partition("/")
    addresses = [_address(each, ZOOKEEPER_PORT) for each in hosts.split(",")]
    return _join(addresses) + slash + chroot.rstrip("/")


def _tls(given: Mapping[str, str]) -> ssl.SSLContext | None:
    wanted = given.get("tls", "1" if "tls_ca" in given or "tls_cert" in given else "0")
    if wanted not in {"0", "1", "noverify"}:
        raise InvalidOptionError(f"tls={shorten(wanted)} must be 0, 1 or noverify")
    if "tls_key" in given and "tls_cert" not in given:
        raise InvalidOptionError("tls_key is of no use without tls_cert, the certificate it belongs to")
    if wanted == "0":
        return None
    try:
        context = ssl.create_default_context(cafile=given.get("tls_ca"))
        if "tls_cert" in given:
            # A key that needs a passphrase is refused; without one OpenSSL would ask at the terminal.
            context.load_cert_chain(given["tls_cert"], given.get("tls_key"), password="")
    except (OSError, ValueError) as error:
        files = ", ".join(
            f"{name}={shorten(file)}" for name, file in given.items() if name.startswith("tls_")
        )
        raise InvalidOptionError(f"the TLS files cannot be read ({files}): {error}") from error
    if wanted == "noverify":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _seconds(name: str, given: object) -> float:
    return check_between(name, given, timedelta(milliseconds=100), timedelta(hours=1)).total_seconds()


def check_text(url: object) -> str:
    """Return the URL when it is a str; raise `InvalidOptionError` otherwise."""
    if not isinstance(url, str):
        raise InvalidOptionError(f"the URL of a store is a str, not {type(url).__name__}; use {EXAMPLES}")
    return url


def hide(url: str) -> str:
    """Return the URL with everything cut out that is, or by a slip may be, user and password.

    Of options nothing is left: a password may hide behind a name that is misspelt, or that is encoded. What
    is long is cut short.
    """
    location, mark, query = url.partition("?")
    if url.startswith("sqlite:"):
        return _cut(location, mark)
    before, _, hosts = location.rpartition("@")
    if "@" in query:
        before, hosts = location, "…"  # the ? may stand in a password
    if before:
        location = before[: before.find(":") + 1] + "//" + hosts
    return _cut(location, mark)


def _cut(location: str, mark: str) -> str:
    if len(location) > _SHOWN_MAX:
        return f"{location[:_SHOWN_MAX]}…"
    return f"{location}?…" if mark else location
