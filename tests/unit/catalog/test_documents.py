"""A change of a document: what is tried again, and what is told where nobody knows."""

import json

import pytest

from cassq.catalog.documents import Documents
from cassq.errors import ConflictError, InvalidOptionError, OutcomeUnknownError, StorageUnavailableError
from cassq.model.document import Document
from cassq.model.ids import new_token
from cassq.storage.sqlite.storage import SqliteStorage

LOST = OutcomeUnknownError("no answer")


class Lossy:
    """A storage whose writes may lose their answers, or themselves.

    Attributes:
        plan: for each write: "applied", "lost before", "lost after", "late" (it lands before the next write).
    """

    def __init__(self, storage, plan):
        self._storage = storage
        self.plan = list(plan)
        self._late = None

    def read_documents(self, kind, name=None):
        if self.plan and self.plan[0] == "unread":
            self.plan.pop(0)
            raise StorageUnavailableError("away")
        return self._storage.read_documents(kind, name)

    def change_document(self, kind, seen, wanted):
        late, self._late = self._late, None
        if late:
            self._storage.change_document(*late)
        what = self.plan.pop(0) if self.plan else "applied"
        if what == "applied":
            return self._storage.change_document(kind, seen, wanted)
        if what == "lost after":
            self._storage.change_document(kind, seen, wanted)
        elif what == "late":
            self._late = kind, seen, wanted
        elif what == "down":
            raise StorageUnavailableError("away")
        raise LOST


@pytest.fixture
def storage():
    opened = SqliteStorage(None)
    yield opened
    opened.close()


def count_up(body):
    return json.dumps((json.loads(body) if body else 0) + 1)


@pytest.mark.parametrize(
    "plan",
    [[], ["lost before"], ["lost after"], ["late"], ["late", "lost after"], ["late", "lost before"]],
    ids=" ".join,
)
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "there"])
def test_a_change_happens_once_whatever_is_lost(storage, plan, is_there):
    if is_there:
        Documents(storage, "k").change("a", lambda _: "1")

    told = Documents(Lossy(storage, plan), "k").change("a", count_up)

    assert told == ("2" if is_there else "1")
    assert [each.body for each in Documents(storage, "k").all()] == [told]


def test_a_deleted_one_is_not_listed_and_may_be_made_anew(storage):
    documents = Documents(storage, "k")
    documents.change("a", lambda _: "1")

    assert documents.change("a", lambda _: None) is None
    assert documents.all() == []
    assert documents.change("a", lambda seen: json.dumps([seen])) == "[null]"


def test_one_is_found_by_its_name_until_it_is_deleted(storage):
    documents = Documents(storage, "kind")
    assert documents.find("a") is None
    documents.change("a", lambda _: '{"n": 1}')
    assert (documents.find("a"), documents.find("b")) == ('{"n": 1}', None)
    assert Documents(storage, "other").find("a") is None
    documents.change("a", lambda _: None)
    assert documents.find("a") is None


def test_others_that_change_it_meanwhile_are_heard(storage):
    documents = Documents(storage, "k")
    documents.change("a", lambda _: "1")
    rivals = iter([10, 20])

    def edit(body):
        if rival := next(rivals, None):
            documents.change("a", lambda _: str(rival))
        return count_up(body)

    assert documents.change("a", edit) == "21"


def test_others_that_never_stop_are_told_as_unknown(storage):
    documents = Documents(storage, "k")

    def edit(body):
        documents.change("a", count_up)
        return "0"

    with pytest.raises(OutcomeUnknownError, match="others kept changing it"):
        documents.change("a", edit)


@pytest.mark.parametrize("plan", [["late", "down"], ["lost after", "unread"]], ids=" ".join)
def test_an_outage_after_a_lost_answer_is_unknown(storage, plan):
    with pytest.raises(OutcomeUnknownError, match="may have been changed"):
        Documents(Lossy(storage, plan), "k").change("a", count_up)


def test_an_outage_before_anything_was_sent_changes_nothing(storage):
    with pytest.raises(StorageUnavailableError):
        Documents(Lossy(storage, ["down"]), "k").change("a", count_up)

    assert Documents(storage, "k").all() == []


def test_what_an_edit_raises_is_raised_as_it_is(storage):
    def edit(body):
        raise ConflictError("it is there already")

    with pytest.raises(ConflictError, match="there already"):
        Documents(storage, "k").change("a", edit)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "is not JSON"),
        (json.dumps("x" * 65_536), "65536 are the most"),
        (json.dumps("ü" * 32_768, ensure_ascii=False), "most"),
    ],
    ids=["no JSON", "too large", "too large in UTF-8"],
)
def test_what_is_no_document_is_refused_by_name(storage, body, words):
    with pytest.raises(InvalidOptionError, match=f"'a'.*{words}"):
        Documents(storage, "k").change("a", lambda _: body)

    assert Documents(storage, "k").all() == []


def test_a_document_without_a_text_is_deleted():
    assert Document("a", new_token(), "").is_deleted
    assert not Document("a", new_token(), "null").is_deleted
