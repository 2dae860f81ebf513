"""`cassq application …`: what it prints, and what it never does."""

import re

import pytest
from command_line import CommandLine

from cassq.gate.applications import KIND
from cassq.storage.sqlite.storage import SqliteStorage

KEY = re.compile(r"cassq_[0-9a-f]{16}_[A-Za-z0-9_-]{43}\n")


@pytest.fixture
def line(tmp_path):
    return CommandLine(f"sqlite:///{tmp_path}/orders.db")


def test_an_application_from_its_creation_to_its_end(line, tmp_path):
    assert line.ok("application", "create", "shop", "--rights", "push,steer", "--allow", "10.0.0.0/8") == ""
    key = line.ok("application", "key", "add", "shop", "--expires", "2999-01-01T00:00Z")
    other = line.json("application", "key", "add", "shop")

    assert KEY.fullmatch(key)
    assert KEY.fullmatch(other["key"] + "\n")
    assert line.json("application", "alter", "shop", "--allow", "", "--rate", "7")["allow"] == []
    (told,) = line.json("application", "list")
    assert (told["application"], told["rights"], told["rate"]) == ("shop", ["push", "steer"], 7.0)
    listed = line.json("application", "key", "list", "shop")
    assert {each["key_id"] for each in listed} == {key[6:22], other["key_id"]}
    line.ok("application", "key", "revoke", "shop", other["key_id"])
    assert [each["key_id"] for each in line.json("application", "key", "list", "shop")] == [key[6:22]]
    line.ok("application", "delete", "shop", "--yes")
    assert line.json("application", "list") == []
    storage = SqliteStorage(str(tmp_path / "orders.db"))
    assert [(each.name, each.body) for each in storage.read_documents(KIND)] == [("shop", "")]
    storage.close()


def test_no_secret_is_shown_twice(line):
    line.ok("application", "create", "shop")
    secret = line.ok("application", "key", "add", "shop").strip().split("_", 2)[2]

    shown = [
        line.run("application", *words, *is_json)
        for words in (["list"], ["key", "list", "shop"], ["alter", "shop", "--rate", "5"])
        for is_json in ([], ["--json"])
    ]

    assert all(each.returncode == 0 for each in shown)
    assert not any(secret in each.stdout + each.stderr for each in shown)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["create", "a.b"], 64, "no dot"),
        (["create", "shop", "--rights", "push,fly"], 64, "'fly' is no right"),
        (["create", "shop", "--allow", "10.0.0.1/8"], 64, "is no network"),
        (["create", "shop", "--rate", "-1"], 64, "rate"),
        (["alter", "shop"], 64, "name what to alter"),
        (["alter", "shop", "--rate", "1"], 66, "no application 'shop'"),
        (["key", "add", "shop"], 66, "no application 'shop'"),
        (["key", "add", "shop", "--expires", "tomorrow"], 64, "a time with its zone"),
        (["key", "add", "shop", "--expires", "2020-01-01T00:00Z"], 64, "is over"),
        (["key", "list", "shop"], 66, "no application 'shop'"),
        (["delete", "shop"], 64, "Add --yes"),
        (["delete", "shop", "--yes"], 66, "no application 'shop'"),
    ],
)
def test_a_mistake_is_named_with_the_way_out(line, words, code, told):
    done = line.run("application", *words)

    assert done.returncode == code
    assert told in done.stderr
    assert line.json("application", "list") == []
