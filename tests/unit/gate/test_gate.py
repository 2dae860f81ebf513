"""Who is let in: keys, rights, connections, addresses, rates, and how soon a change is heard of."""

import hashlib
import hmac
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest

from cassq.errors import (
    AccessDeniedError,
    ApplicationNotFoundError,
    ConflictError,
    InvalidNameError,
    InvalidOptionError,
    KeyRefusedError,
    RateExceededError,
    StorageUnavailableError,
)
from cassq.gate import Application, Applications, Asked, Gate, Origin, Right, to_networks
from cassq.gate.applications import KIND
from cassq.gate.gate import KNOWN_S
from cassq.gate.keys import Key
from cassq.model.document import Document
from cassq.model.ids import new_token
from cassq.storage.sqlite.storage import SqliteStorage

HERE = Origin(ip_address("10.1.2.3"), is_private=True)
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


class Clock:
    """Elapsed time that a test moves."""

    def __init__(self):
        self.time = 1000.0

    def now(self):
        return self.time

    latest = now


class Scene:
    """A gate and the applications that it knows."""

    def __init__(self):
        self.storage = SqliteStorage(None)
        self.applications = Applications(self.storage)
        self.clock = Clock()
        self.day = NOON
        self.gate = Gate(self.applications, self.clock, today=lambda: self.day)

    def key(self, name="shop", *, rights=(Right.PUSH,), key=None, **given):
        self.applications.create(Application(name, frozenset(rights), **given))
        made = self.applications.add_key(name, **(key or {}))
        self.gate.look()
        return str(made)

    def admit(self, key, right=Right.PUSH, origin=HERE):
        return self.gate.admit(Asked(key, right, origin))


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.storage.close()


def test_a_key_lets_its_application_in(scene):
    key = scene.key()

    admitted = scene.admit(key)

    assert (admitted.application.name, admitted.application.prefix) == ("shop", "shop")
    assert admitted.key_id == Key.parse(key).id


@pytest.mark.parametrize("right", Right)
def test_a_right_that_is_missing_is_refused_and_named(scene, right):
    key = scene.key(rights=[each for each in Right if each is not right])

    with pytest.raises(AccessDeniedError, match=f"no right '{right.value}'"):
        scene.admit(key, right)


def test_an_operator_names_all_queues_and_needs_the_other_rights_like_anybody(scene):
    key = scene.key(rights=[Right.OPERATOR, Right.LOOK])

    assert scene.admit(key, Right.LOOK).application.prefix is None
    with pytest.raises(AccessDeniedError):
        scene.admit(key, Right.STEER)


def changed(key, place):
    return key[:place] + ("a" if key[place] != "a" else "b") + key[place + 1 :]


def test_a_key_that_differs_in_any_one_character_is_refused(scene):
    key = scene.key()

    for place in range(len(key)):
        with pytest.raises(KeyRefusedError):
            scene.admit(changed(key, place))


@pytest.mark.parametrize("key", [None, "", "cassq_", "x" * 10_000, "cassq_" + "0" * 16 + "_" + "ü" * 43])
def test_what_is_no_key_is_refused(scene, key):
    with pytest.raises(KeyRefusedError):
        scene.admit(key)


def test_nobody_is_told_whether_an_application_a_key_or_a_secret_is_wrong(scene):
    key = scene.key()
    scene.key("late", key={"expires_at": NOON})
    words = set()
    for wrong in (None, str(Key.new()), changed(key, len(key) - 1), changed(key, 8)):
        with pytest.raises(KeyRefusedError) as refusal:
            scene.admit(wrong)
        words.add(str(refusal.value))

    assert len(words) == 1


@pytest.mark.parametrize("key", ["nonsense", str(Key("0" * 16, "A" * 43))], ids=["no key", "unknown id"])
def test_a_guess_costs_one_hash_and_one_comparison_as_a_good_key_does(scene, key, monkeypatch):
    good = scene.key()
    calls = []
    for place, name in ((hashlib, "sha256"), (hmac, "compare_digest")):
        real = getattr(place, name)
        monkeypatch.setattr(
            place, name, lambda *given, real=real, name=name: calls.append(name) or real(*given)
        )

    with pytest.raises(KeyRefusedError):
        scene.admit(key)
    guess, calls[:] = calls[:], []
    scene.admit(good)

    assert guess == calls == ["sha256", "compare_digest"]


def test_a_key_is_good_until_it_expires(scene):
    key = scene.key(key={"expires_at": NOON + timedelta(seconds=1)})
    assert scene.admit(key)

    scene.day += timedelta(seconds=1)

    with pytest.raises(KeyRefusedError):
        scene.admit(key)


def test_a_revoked_key_is_refused_after_the_next_look_and_the_others_stay(scene):
    key = scene.key()
    other = str(scene.applications.add_key("shop"))

    scene.applications.revoke_key("shop", Key.parse(key).id)
    scene.gate.look()

    with pytest.raises(KeyRefusedError):
        scene.admit(key)
    assert scene.admit(other)


def test_keys_of_a_deleted_application_are_refused_also_where_it_is_made_anew(scene):
    key = scene.key()
    scene.applications.delete("shop")
    fresh = scene.key()

    with pytest.raises(KeyRefusedError):
        scene.admit(key)
    assert scene.admit(fresh)


def test_what_is_known_gets_old_by_elapsed_time_from_before_it_was_read(scene, monkeypatch):
    assert scene.gate.age_s == float("inf")
    read = scene.storage.read_documents

    def slow(*given):
        scene.clock.time += KNOWN_S
        return read(*given)

    monkeypatch.setattr(scene.storage, "read_documents", slow)
    scene.gate.look()

    assert scene.gate.age_s == KNOWN_S


def test_a_look_that_fails_leaves_what_is_known_and_its_age(scene, monkeypatch):
    key = scene.key()

    def away(*_):
        raise StorageUnavailableError("away")

    monkeypatch.setattr(scene.storage, "read_documents", away)
    scene.clock.time += 1

    with pytest.raises(StorageUnavailableError):
        scene.gate.look()
    assert scene.admit(key)
    assert scene.gate.age_s == 1


def test_a_slow_look_does_not_undo_what_a_later_one_found(scene, monkeypatch):
    key = scene.key()
    read = scene.storage.read_documents

    def overtaken(*given):
        found = read(*given)
        monkeypatch.setattr(scene.storage, "read_documents", read)
        scene.applications.revoke_key("shop", Key.parse(key).id)
        scene.clock.time += 0.5
        scene.gate.look()
        return found

    monkeypatch.setattr(scene.storage, "read_documents", overtaken)
    scene.gate.look()

    with pytest.raises(KeyRefusedError):
        scene.admit(key)


@pytest.mark.parametrize("of", ["application", "key"])
def test_a_key_is_refused_from_another_network(scene, of):
    networks = {"allow": to_networks(["10.0.0.0/8"])} if of == "application" else {}
    key = scene.key(key={} if networks else {"allow": ["10.0.0.0/8"]}, **networks)
    assert scene.admit(key)

    with pytest.raises(AccessDeniedError, match=r"not be used from 11\.0\.0\.1"):
        scene.admit(key, origin=replace(HERE, address=ip_address("11.0.0.1")))


def test_a_key_that_others_could_read_on_its_way_is_refused(scene):
    key = scene.key()

    with pytest.raises(AccessDeniedError, match="TLS"):
        scene.admit(key, origin=replace(HERE, is_private=False))


def test_a_key_has_so_many_uses_a_second_and_costs_no_other_key_one(scene):
    key = scene.key(rate=2.0)
    other = str(scene.applications.add_key("shop"))
    scene.gate.look()
    for _ in range(2):
        scene.admit(key)

    with pytest.raises(RateExceededError) as refusal:
        scene.admit(key)
    assert refusal.value.retry_after_s == 0.5
    assert scene.admit(other)

    scene.clock.time += 0.5
    assert scene.admit(key)
    with pytest.raises(RateExceededError):
        scene.admit(key)


def test_a_refused_key_uses_up_nothing(scene):
    key = scene.key(rate=1.0)
    for _ in range(5):
        with pytest.raises(KeyRefusedError):
            scene.admit(changed(key, len(key) - 1))

    assert scene.admit(key)


@pytest.mark.parametrize(
    "body",
    [
        "null",
        "[]",
        '{"rights": ["push"]}',
        '{"rights": ["fly"], "allow": [], "rate": null, "keys": {}}',
        "[" * 9000,
    ],
)
def test_a_document_that_is_none_lets_nobody_in_and_stops_no_other(scene, body, caplog):
    key = scene.key()
    scene.storage.change_document(KIND, None, Document("bad", new_token(), body))

    scene.gate.look()
    scene.gate.look()

    assert scene.admit(key)
    assert len([each for each in caplog.records if "'bad'" in each.getMessage()]) == 1


def test_nothing_that_is_stored_shown_or_logged_has_a_secret(scene):
    key = Key.new()
    made = scene.key()

    assert Key.parse(made).secret not in json.dumps(
        [each.body for each in scene.storage.read_documents(KIND)]
    )
    assert key.secret not in repr(key)


@pytest.mark.parametrize("name", ["", "a.b", "-a", "a" * 41, "ü", "a/b", "cassq", "a\n"])
def test_a_name_that_is_none_of_an_application_is_refused(scene, name):
    with pytest.raises(InvalidNameError):
        scene.applications.create(Application(name, frozenset()))


def test_there_is_one_application_of_a_name(scene):
    scene.key()
    with pytest.raises(ConflictError, match="exists"):
        scene.applications.create(Application("shop", frozenset()))


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_out_of_range_is_refused(scene, rate):
    with pytest.raises(InvalidOptionError, match="rate"):
        scene.applications.create(Application("shop", frozenset(), rate=rate))


def test_what_is_not_there_is_said_so(scene):
    for call in (
        lambda: scene.applications.add_key("shop"),
        lambda: scene.applications.delete("shop"),
        lambda: scene.applications.alter("shop", lambda seen: seen),
    ):
        with pytest.raises(ApplicationNotFoundError, match="no application 'shop'"):
            call()
    scene.key()
    with pytest.raises(ApplicationNotFoundError, match="has no key 'nope'"):
        scene.applications.revoke_key("shop", "nope")
