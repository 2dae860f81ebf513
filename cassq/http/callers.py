"""Who calls: the key that came with a request, where it came from, and whether anybody passed it on.

Owns what of a request the gate is told. What must not break: an address counts as a client's only where a
proxy that was named says so.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from starlette.requests import Request

from cassq.errors import InvalidOptionError, KeyRefusedError
from cassq.gate.addresses import Origin, Proxies, check_no_proxy, origin_of
from cassq.gate.keys import Key
from cassq.http.browsers import check_no_page


class Caller(NamedTuple):
    """Who asked, as the log tells; None is nobody that is known."""

    application: str | None
    key: str | None
    address: str


def bearer_key(request: Request) -> str | None:
    """Return the key of a request.

    Raises: KeyRefusedError: there are several.
    """
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise KeyRefusedError("there are several Authorization headers: send one")
    scheme, _, key = (given[0] if given else "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def refused_key(request: Request, key_of: Callable[[Request], str | None]) -> str | None:
    """Return the id of a key that was refused, for the log: its form says nothing of whose it is."""
    with suppress(KeyRefusedError):
        key = Key.parse(key_of(request) or "")
        return f"{key.id} (refused)" if key else None
    return None


def find_origin(request: Request, proxies: Proxies) -> Origin:
    """Return where a request came from.

    Raises: as `origin_of`.
    """
    client = request.scope.get("client")
    return origin_of(
        client[0] if client else None,
        request.headers.getlist("x-forwarded-for"),
        request.headers.getlist("x-forwarded-proto"),
        proxies,
        is_tls=request.scope["scheme"] == "https",
    )


def told_address(request: Request, proxies: Proxies) -> str:
    """Return the address that the log tells: that of the peer, where nobody knows the client's."""
    with suppress(InvalidOptionError):
        return str(find_origin(request, proxies).address)
    return str((request.scope.get("client") or ["?"])[0])


def check_sender(request: Request, proxies: Proxies, *, is_open: bool) -> None:
    """Let in what no web page, nor a proxy that nobody named, passed on.

    Raises: AccessDeniedError: one did.
    """
    client = request.scope.get("client")
    check_no_proxy(client[0] if client else None, request.headers, proxies)
    if is_open:
        check_no_page(request)
