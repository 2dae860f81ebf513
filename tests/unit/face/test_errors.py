"""The tree of errors."""

import pytest

import cassq
from cassq import errors


def tree(kind):
    yield kind
    for child in kind.__subclasses__():
        yield from tree(child)


ALL = [kind for kind in tree(errors.CassqError) if kind.__module__ == "cassq.errors"]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_says_when_it_is_raised_and_how_doors_answer(kind):
    assert kind.__doc__.startswith("Raised when ")
    assert 400 <= kind.http_status < 600
    assert 1 <= kind.exit_code < 126
    assert getattr(cassq, kind.__name__) is kind


def test_every_error_has_a_code_of_its_own():
    codes = [kind.code for kind in ALL]

    assert len(set(codes)) == len(codes)


def test_a_retry_of_what_is_unavailable_never_swallows_an_unknown_outcome():
    assert not issubclass(errors.OutcomeUnknownError, errors.UnavailableError)
