"""What the storage port says of documents, asked of every adapter."""

import json
import secrets

import pytest
from stored import check_one_winner, race

from cassq.errors import DecodeError
from cassq.model.document import Document
from cassq.model.ids import new_token


def document(name="a", body='{"size": 1}'):
    return Document(name, new_token(), body)


@pytest.fixture
def kind():
    """A kind that no other test uses."""
    return f"kind-{secrets.token_hex(6)}"


def test_a_kind_that_nobody_used_has_no_documents(storage, kind):
    assert list(storage.read_documents(kind)) == []
    assert list(storage.read_documents(kind, "a")) == []


def test_documents_are_read_one_by_one_and_all_by_name_each_of_its_kind(storage, kind):
    made = [document(name, json.dumps(name)) for name in ("b", "a", "ü c")]
    for each in made:
        assert storage.change_document(kind, None, each)
    assert storage.change_document(f"{kind}-other", None, document("a", "[]"))

    assert list(storage.read_documents(kind)) == sorted(made, key=lambda each: each.name.encode())
    assert [list(storage.read_documents(kind, each.name)) for each in made] == [[each] for each in made]


def test_one_that_is_there_is_not_created_again(storage, kind):
    first = document()
    assert storage.change_document(kind, None, first)

    assert not storage.change_document(kind, None, document(body="2"))

    assert list(storage.read_documents(kind)) == [first]


def test_it_is_changed_by_who_saw_it_as_it_is_and_by_nobody_who_saw_an_older_one(storage, kind):
    first, second = document(), document(body="2")
    storage.change_document(kind, None, first)

    assert storage.change_document(kind, first, second)
    assert not storage.change_document(kind, first, document(body="3"))

    assert list(storage.read_documents(kind, "a")) == [second]


def test_one_that_was_never_there_is_not_changed(storage, kind):
    assert not storage.change_document(kind, document(), document())

    assert list(storage.read_documents(kind, "a")) == []


def test_one_that_was_deleted_is_read_as_such_and_made_anew_by_who_saw_that(storage, kind):
    first, gone, again = document(), document(body=""), document(body='"again"')
    storage.change_document(kind, None, first)

    assert storage.change_document(kind, first, gone)
    assert [each.is_deleted for each in storage.read_documents(kind)] == [True]
    assert not storage.change_document(kind, None, document())  # a creation that lands late
    assert not storage.change_document(kind, first, document())

    assert storage.change_document(kind, gone, again)
    assert list(storage.read_documents(kind)) == list(storage.read_documents(kind, "a")) == [again]


@pytest.mark.parametrize("is_there", [False, True], ids=["first", "later"])
def test_of_those_who_change_what_they_saw_one_does(storage, kind, is_there):
    seen = document() if is_there else None
    if seen:
        storage.change_document(kind, None, seen)

    applied, unknown = race(
        lambda mine: storage.change_document(kind, seen, mine), [document(body=str(n)) for n in range(4)]
    )

    check_one_winner(applied, unknown, next(iter(storage.read_documents(kind, "a")), None), seen)


def test_a_document_of_64_kib_is_kept_whole(storage, kind):
    large = document(body=json.dumps("ü" * 32_000, ensure_ascii=False))
    storage.change_document(kind, None, large)

    assert list(storage.read_documents(kind)) == [large]


def test_a_row_that_is_not_ours_raises(storage, adapter, kind):
    storage.change_document(kind, None, document())

    adapter.plant(storage, "document", kind)

    with pytest.raises(DecodeError):
        storage.read_documents(kind)
    with pytest.raises(DecodeError):
        storage.read_documents(kind, "a")
