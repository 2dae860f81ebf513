"""Where a request comes from: the address that counts, behind whichever proxies are trusted.

Owns which of the addresses that a request names is believed. What must not break: a client cannot choose its
address, nor claim to have come by TLS; only the operator's own proxies are believed.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cassq.errors import AccessDeniedError, InvalidOptionError
from cassq.model.ids import shorten

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: As a trusted proxy: whoever connects by a Unix socket.
UNIX = "unix"

_LOOPBACK = ipaddress.ip_address("127.0.0.1")


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies that an operator trusts.

    Attributes:
        is_unix: whether those are trusted that connect by a Unix socket.
    """

    networks: tuple[Network, ...] = ()
    is_unix: bool = False

    @classmethod
    def of(cls, words: Iterable[str]) -> "Proxies":
        """Return them from networks and the word `unix`.

        Raises: InvalidOptionError: one is neither, or has everybody in it.
        """
        given = list(words)
        networks = to_networks(each for each in given if each != UNIX)
        for each in networks:
            if not each.prefixlen:
                raise InvalidOptionError(
                    f"{each} as a trusted proxy has everybody in it, and anybody could write an address: "
                    "name the proxy's own network"
                )
        return cls(networks, UNIX in given)

    def trusts(self, address: Address | None) -> bool:
        """Tell whether a peer is one of them; None came by a Unix socket."""
        return self.is_unix if address is None else is_inside(address, self.networks)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from.

    Attributes:
        address: of the client.
        is_private: whether nobody on the way could have read the key.
    """

    address: Address
    is_private: bool


def to_networks(words: Iterable[str]) -> tuple[Network, ...]:
    """Return networks from their texts, as 10.0.0.0/8 or one address.

    Raises: InvalidOptionError: one is none, or has bits behind its length.
    """
    networks = []
    for word in words:
        try:
            networks.append(ipaddress.ip_network(word))
        except ValueError as error:
            raise InvalidOptionError(
                f"{shorten(word)} is no network: {error}; write 10.0.0.0/8, 2001:db8::/32 or one address"
            ) from None
    return tuple(networks)


def is_inside(address: Address, networks: Iterable[Network]) -> bool:
    """Tell whether an address is in one of the networks."""
    return any(address in network for network in networks)


def to_address(text: str) -> Address:
    """Return an address; an IPv4 one that is written as IPv6 is IPv4.

    Raises: ValueError: it is none.
    """
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            return to_address(str(address).partition("%")[0])
        return address.ipv4_mapped or address
    return address


#: Of peers: they come again and again. What a header names is not kept: clients choose it.
_to_peer = lru_cache(1024)(to_address)


def check_no_proxy(peer: str | None, headers: Iterable[str], proxies: Proxies) -> None:
    """Let in a request of this machine that no proxy passed on, or one that is trusted.

    Without its name it would seem to come from here, and a key that others could read would be taken.

    Args:
        headers: their names, in small letters.

    Raises: AccessDeniedError: a proxy of this machine passed it on that nobody named.
    """
    address = None if peer is None else _to_peer(peer)
    if proxies.trusts(address) or not (address is None or address.is_loopback):
        return
    for name in headers:
        if name == "forwarded" or name.startswith("x-forwarded-"):
            raise AccessDeniedError(
                f"a proxy on this machine passed this on (it has {name}), and nobody said so: "
                f"name it by --trusted-proxy {address or UNIX}"
            )


def origin_of(
    peer: str | None, forwarded: Sequence[str], protocols: Sequence[str], proxies: Proxies, *, is_tls: bool
) -> Origin:
    """Return where a request comes from.

    Args:
        peer: the address that connected; None for a Unix socket.
        forwarded, protocols: the values of the headers X-Forwarded-For and X-Forwarded-Proto, in their order.
        is_tls: whether the connection itself is encrypted.

    Raises: InvalidOptionError: a trusted proxy sent headers that cannot be read.
    """
    connected = None if peer is None else _to_peer(peer)
    if not proxies.trusts(connected):
        address = connected or _LOOPBACK
        return Origin(address, is_tls or address.is_loopback)
    hops = [each.strip() for value in forwarded for each in value.split(",")]
    client = connected or _LOOPBACK
    # From the right: each proxy adds whom it saw. Before the first that is not ours anybody may have written.
    for hop in reversed(hops):
        try:
            client = to_address(hop)
        except ValueError:
            raise InvalidOptionError(
                f"X-Forwarded-For has {shorten(hop)}, which is no address: have the proxy set it anew"
            ) from None
        if not is_inside(client, proxies.networks):
            break
    told = [each.strip().lower() for value in protocols for each in value.split(",")]
    if any(each not in {"http", "https"} for each in told):
        raise InvalidOptionError(f"X-Forwarded-Proto has {shorten(told)}: http or https")
    is_local = not hops and client.is_loopback
    is_private = told[-1:] == ["https"] if told or hops else is_tls or is_local
    return Origin(client, is_private)
