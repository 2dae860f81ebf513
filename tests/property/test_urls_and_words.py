"""URLs and what is written on the command line: read as it is written, or refused with words."""

from datetime import timedelta
from urllib.parse import quote

import click
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from odd_values import OBJECTS, TEXTS, names, refused

import cassq
from cassq.cli.values import to_bytes, to_duration, to_header, to_replication
from cassq.errors import CassqError, InvalidOptionError, UsageError
from cassq.urls import hide, take_apart_cassandra, take_apart_sqlite

quietly = settings(derandomize=True, deadline=None, max_examples=200)

HOSTS = st.from_regex(r"[a-z][a-z0-9.-]{0,10}", fullmatch=True) | st.just("10.0.0.1")
PORTS = st.integers(1, 65535)
ADDRESSES = st.lists(st.tuples(HOSTS | st.just("::1"), PORTS), min_size=1, max_size=3)
KEYSPACES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
SECRETS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
OPTIONS = ["zookeeper", "zookeeper_auth", "datacenter", "tls", "timeout", "username", "password", "tls_ca"]


def written(addresses):
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


# -- Cassandra -----------------------------------------------------------------------------------------


@quietly
@given(ADDRESSES, KEYSPACES, SECRETS, SECRETS, ADDRESSES)
def test_a_url_says_what_was_written_into_it(addresses, keyspace, user, password, zookeeper):
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    url = (
        f"cassandra://{login}@{written(addresses)}/{keyspace}?zookeeper={quote(written(zookeeper), safe='')}"
    )
    url += f"&zookeeper_auth={quote(user.replace(':', ''), safe='')}:{quote(password, safe='')}"

    target = take_apart_cassandra(url)

    assert list(target.hosts) == addresses
    assert target.keyspace == keyspace
    assert (target.username, target.password) == (user, password)
    assert target.zookeeper == written(zookeeper)
    assert target.zookeeper_auth == (user.replace(":", ""), password)
    again = take_apart_cassandra(target.shown)
    assert (again.hosts, again.keyspace) == (target.hosts, target.keyspace)


@quietly
@given(SECRETS)
def test_a_password_is_nowhere_in_what_a_url_prints(tail):
    password = f"S3CRET{tail}"
    target = take_apart_cassandra(
        f"cassandra://me:{quote(password, safe='')}@host/ks?zookeeper_auth=me:{quote(password, safe='')}"
    )

    assert "S3CRET" not in repr(target) + str(target) + target.shown


@quietly
@given(
    st.text(st.sampled_from("ab/?#@:[]%&=\\ \n"), max_size=4),
    st.text(st.sampled_from("ab/?#@:[]%&=\\ \n"), max_size=4),
    st.sampled_from(
        ["host/ks", "host", "host:0/ks", "host/ks?zoo=keeper", "/ks", "host/ks?timeout=x", "::1/ks"]
    ),
)
def test_a_password_that_is_not_encoded_does_not_show(between, behind, rest):
    url = f"cassandra://me:S3CRET{between}S3CRET{behind}@{rest}"

    words = refused(UsageError, lambda: take_apart_cassandra(url))

    assert "S3CRET" not in (words or "")
    assert "S3CRET" not in hide(url)
    if words is None:
        assert "S3CRET" not in repr(take_apart_cassandra(url))


@pytest.mark.parametrize(
    "query",
    [
        "password=S3CRET&zoo=keeper",
        "pass%77ord=S3CRET&zoo=keeper",
        "passwrd=S3CRET",
        "password=S3CRET&password=S3CRET",
        "zookeeper_auth=S3CRET",
        "zookeeper=me:S3CRET%40host",
        "zookeeper_auth=me:S3CRET&timeout=x",
    ],
)
def test_a_password_among_the_options_does_not_show(query):
    words = refused(UsageError, lambda: take_apart_cassandra(f"cassandra://host/ks?{query}"))

    assert words
    assert "S3CRET" not in words


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("cassandra://h/ks#there", "malformed"),
        ("cassandra://h\n/ks", "malformed"),
        ("cassandra://h/ks?timeout=1&timeout=2", "twice"),
        ("cassandra://::1/ks", "in brackets"),
        ("cassandra://h:²/ks", "is not HOST"),
        ("cassandra://h:" + "9" * 5000 + "/ks", "is not HOST"),
        ("cassandra://a b/ks", "is not HOST"),
        ("cassandra://[::1/ks", "an IPv6 address in brackets"),
        ("cassandra://h,[10.0.0.1:9042]/ks", "an IPv6 address in brackets"),
        ("cassandra://h,[127.0.0.1]/ks", "an IPv6 address in brackets"),
        ("cassandra://%ff@h/ks", "malformed"),
        ("cassandra://h/ks?datacenter=%ff", "malformed"),
        ("cassandra://h/ks?tls_ca=%00", "cannot be read"),
        ("cassandra://h/ks?timeout=nan", "0.1s to 3600s"),
        ("cassandra://h/ks?timeout=1e400", "0.1s to 3600s"),
        ("sqlite:///%00", "is not the name of a file"),
        ("sqlite:///%ff", "cannot be the name of a file"),
        ("sqlite:///\ud800", "cannot be the name of a file"),
        ("sqlite:///" + "x" * 5000, "cannot be the name of a file"),
        ("sqlite:///:memory:", "memory:"),
        ("sqlite:///o.db?durability=full&durability=full", "twice"),
    ],
)
def test_what_would_be_changed_without_a_word_is_refused(url, told):
    with pytest.raises(UsageError, match=told):
        cassq.connect(url)


@quietly
@given(TEXTS)
@example("//[")
@example("//h:1,h:²/ks")
@example("//h/ks?tls=1&tls_ca=\0")
def test_whatever_follows_the_scheme_is_read_or_refused(rest):
    for url in (
        f"cassandra:{rest}",
        f"cassandra://{rest}",
        f"cassandra://h/ks?{rest}",
        f"cassandra://{rest}/ks",
    ):
        words = refused(UsageError, lambda url=url: take_apart_cassandra(url))
        if words is None:
            target = take_apart_cassandra(url)
            assert take_apart_cassandra(target.shown).hosts == target.hosts


@quietly
@given(TEXTS)
def test_whatever_follows_the_scheme_of_a_file_is_read_or_refused(rest):
    for url in (f"sqlite:{rest}", f"sqlite:///{rest}", f"sqlite:///o.db?{rest}"):
        words = refused(UsageError, lambda url=url: take_apart_sqlite(url))
        assert words is None or "S3CRET" not in words
        if words is None:
            path, _ = take_apart_sqlite(url)
            assert take_apart_sqlite(f"sqlite:///{quote(path)}")[0] == path


@quietly
@given(st.sampled_from(OPTIONS), OBJECTS)
@example("timeout", None)
@example("timeout", 10**400)
@example("tls", [])
@example("zookeeper_auth", 5)
def test_an_option_of_any_kind_is_taken_or_refused_by_name(option, value):
    words = refused(UsageError, lambda: take_apart_cassandra("cassandra://h/ks", {option: value}))

    assert words is None or option in words or "is not HOST" in words or "TLS files" in words


@quietly
@given(OBJECTS)
def test_whatever_is_no_url_of_a_store_is_refused(value):
    words = refused(CassqError, lambda: cassq.connect(value))

    assert words
    assert "memory:" in words


# -- the command line ----------------------------------------------------------------------------------


@quietly
@given(st.timedeltas(timedelta(0), timedelta(days=10**6)), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_a_duration_is_what_was_written_to_the_microsecond(duration, unit):
    whole = timedelta(
        **{{"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[unit]: 1}
    )
    count = duration // whole

    assert to_duration(f"{count}{unit}") == count * whole
    seconds, microseconds = divmod(duration // timedelta(microseconds=1), 10**6)
    assert to_duration(f"{seconds}.{microseconds:06}s") == duration


@quietly
@given(TEXTS | st.from_regex(r"\d+(\.\d+)?(ms|s|m|h|d)", fullmatch=True))
@example("9" * 2000 + "s")
@example("0.0001ms")
@example("1" * 50_000 + "KiB")
@example("dc1:" + "9" * 5000)
@example("class:3")
@example('{"class": ' + "[" * 100_000)
@example('{"a": NaN}')
def test_a_word_of_the_command_line_is_read_or_refused_by_name(text):
    for read in (to_duration, to_bytes, to_header, to_replication):
        words = refused(click.BadParameter, lambda read=read: read(text))
        assert words is None or names(words, text)


@quietly
@given(st.integers(0, 10**15), st.sampled_from(["", "B", "KiB", "MiB"]))
def test_a_size_is_what_was_written(count, unit):
    assert to_bytes(f"{count}{unit}") == count * {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2}[unit]


@quietly
@given(st.text(min_size=1).filter(lambda name: "=" not in name), st.text())
def test_a_header_is_what_was_written(name, value):
    assert to_header(f"{name}={value}") == (name, value)


@quietly
@given(st.dictionaries(st.from_regex(r"dc[0-9]{1,3}", fullmatch=True), st.integers(1, 99), min_size=1))
def test_a_replication_is_what_was_written(factors):
    wanted = {"class": "NetworkTopologyStrategy", **factors}

    assert to_replication(",".join(f"{name}:{factor}" for name, factor in factors.items())) == wanted
    assert to_replication(str(wanted)) == wanted


def test_a_url_that_is_a_secret_alone_is_not_quoted():
    with pytest.raises(InvalidOptionError) as raised:
        cassq.connect("redis://me:S3CRET@host")

    assert "S3CRET" not in str(raised.value)
