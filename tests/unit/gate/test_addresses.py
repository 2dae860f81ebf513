"""Which address counts, and whether the way to it was private."""

import pytest

from cassq.errors import AccessDeniedError, InvalidOptionError
from cassq.gate.addresses import Proxies, check_no_proxy, origin_of, to_networks

PROXIES = Proxies.of(["10.0.0.0/8", "fd00::/8"])
UNIX = Proxies.of(["unix", "10.0.0.0/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["1.1.1.1"], "192.0.2.1"),  # forged: the peer is no proxy of ours
        ("192.0.2.1", ["nonsense"], "192.0.2.1"),  # nor is it read
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.9"], "192.0.2.9"),
        ("10.0.0.1", ["1.1.1.1, 192.0.2.9"], "192.0.2.9"),  # what the client wrote stands before
        ("10.0.0.1", ["1.1.1.1", "192.0.2.9"], "192.0.2.9"),
        ("10.0.0.1", ["nonsense, 192.0.2.9"], "192.0.2.9"),
        ("10.0.0.1", ["192.0.2.9, 10.0.0.2"], "192.0.2.9"),  # two proxies
        ("10.0.0.1", ["1.1.1.1, 192.0.2.9, 10.0.0.2, 10.0.0.3"], "192.0.2.9"),
        ("10.0.0.1", ["10.0.0.2, 192.0.2.9"], "192.0.2.9"),  # a client that claims to be a proxy
        ("10.0.0.1", ["10.0.0.7"], "10.0.0.7"),  # a client among the proxies
        ("10.0.0.1", ["  192.0.2.9  "], "192.0.2.9"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("fd00::1", ["::ffff:192.0.2.9"], "192.0.2.9"),
        ("::ffff:10.0.0.1", ["192.0.2.9"], "192.0.2.9"),
        ("::ffff:192.0.2.1", ["1.1.1.1"], "192.0.2.1"),
        (None, ["1.1.1.1"], "127.0.0.1"),  # a socket that was not said to be a proxy's
    ],
)
def test_the_rightmost_address_that_is_no_proxy_counts(peer, forwarded, client):
    assert str(origin_of(peer, forwarded, [], PROXIES, is_tls=False).address) == client


def test_a_unix_socket_is_a_proxy_where_it_is_said_so():
    assert str(origin_of(None, ["192.0.2.9"], ["https"], UNIX, is_tls=False).address) == "192.0.2.9"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        "192.0.2.9,",
        "192.0.2.9:80",
        "192.0.2",
        "unknown",
        "192.0.2.9 192.0.2.8",
        "\x00",
        "١٢.0.0.1",
    ],
)
def test_a_header_of_a_proxy_that_names_no_address_is_refused(header):
    with pytest.raises(InvalidOptionError, match="X-Forwarded-For"):
        origin_of("10.0.0.1", [header], [], PROXIES, is_tls=False)


@pytest.mark.parametrize(
    ("peer", "forwarded", "protocols", "is_tls", "is_private"),
    [
        ("192.0.2.1", [], [], False, False),
        ("192.0.2.1", [], [], True, True),
        ("192.0.2.1", [], ["https"], False, False),  # anybody writes that
        ("127.0.0.1", [], [], False, True),
        ("::1", [], [], False, True),
        (None, [], [], False, True),
        ("10.0.0.1", ["192.0.2.9"], ["https"], False, True),
        ("10.0.0.1", ["192.0.2.9"], ["http"], False, False),
        ("10.0.0.1", ["192.0.2.9"], ["https", "http"], False, False),  # the nearest proxy is believed
        ("10.0.0.1", ["192.0.2.9"], [], False, False),
        ("10.0.0.1", ["192.0.2.9"], [], True, False),  # how the client came the proxy does not say
        ("10.0.0.1", ["127.0.0.1"], [], False, False),
        ("10.0.0.1", [], [], True, True),
        ("10.0.0.1", [], [], False, False),
    ],
)
def test_a_way_is_private_by_tls_or_on_this_machine(peer, forwarded, protocols, is_tls, is_private):
    assert origin_of(peer, forwarded, protocols, PROXIES, is_tls=is_tls).is_private is is_private


def test_a_protocol_that_is_none_is_refused():
    with pytest.raises(InvalidOptionError, match="X-Forwarded-Proto"):
        origin_of("10.0.0.1", ["192.0.2.9"], ["gopher"], PROXIES, is_tls=False)


@pytest.mark.parametrize("word", ["10.0.0.1/8", "ten", "", "10.0.0.0/33", "unix"])
def test_what_is_no_network_is_refused_by_name(word):
    with pytest.raises(InvalidOptionError, match="is no network"):
        to_networks([word])


@pytest.mark.parametrize("word", ["0.0.0.0/0", "::/0"])
def test_nobody_trusts_everybody(word):
    with pytest.raises(InvalidOptionError, match="everybody"):
        Proxies.of(["10.0.0.0/8", word])


FORWARDED = ["host", "x-forwarded-for"]


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1", None])
@pytest.mark.parametrize("name", ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"])
def test_a_proxy_on_this_machine_that_nobody_named_is_refused(peer, name):
    with pytest.raises(AccessDeniedError, match="--trusted-proxy"):
        check_no_proxy(peer, ["host", name], PROXIES)
    check_no_proxy(peer, ["host", "forward", "x-real-ip"], PROXIES)


@pytest.mark.parametrize(
    ("peer", "proxies"),
    [("192.0.2.1", PROXIES), ("10.0.0.1", PROXIES), ("127.0.0.1", Proxies.of(["127.0.0.1"])), (None, UNIX)],
)
def test_a_proxy_that_was_named_and_what_others_write_is_not_in_the_way(peer, proxies):
    check_no_proxy(peer, FORWARDED, proxies)
