"""What is searched anew: each search whose model or bounds are not those on record. Needs no spin."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from _check_model import cli, record
from _check_model.runs import ABLATIONS, LIST, VERIFICATIONS, Run
from _check_model.spin import Verdict

HELD = Verdict(states=7, depth=3, seconds=0.1, failure="", at_depth=-1, is_complete=True)
FAILED = Verdict(states=7, depth=3, seconds=0.1, failure="lost", at_depth=2, is_complete=False)


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A folder of models that the record is of."""
    monkeypatch.setattr(record, "MODELS", tmp_path)
    monkeypatch.setattr(record, "FILE", tmp_path / "searched.json")
    for run in VERIFICATIONS:
        (tmp_path / f"{run.file}.pml").write_text(f"/* {run.file} */")
    return tmp_path


@pytest.fixture
def searched(monkeypatch):
    """Runs that were searched instead of by spin; what each comes to is what it should."""
    runs = []

    def search(run):
        runs.append(run)
        return FAILED if run.without else HELD

    monkeypatch.setattr(cli, "search", search)
    monkeypatch.setattr(cli, "find_spin", lambda: "")
    return runs


def test_nothing_is_known_where_there_is_no_record(models):
    assert not record.is_known(LIST)


def test_all_that_was_recorded_is_not_searched_again(models, searched):
    assert cli.main(["--record"]) == 0
    assert {*searched} == {*VERIFICATIONS, *ABLATIONS}

    searched.clear()
    assert cli.main(["--changed"]) == 0
    assert searched == []


def test_a_model_that_changed_is_searched_again_with_each_of_its_rules(models, searched):
    cli.main(["--record"])
    searched.clear()
    (models / "list.pml").write_text("/* another */")

    assert cli.main(["--changed"]) == 0
    assert {*searched} == {run for run in (*VERIFICATIONS, *ABLATIONS) if run.file == "list"}


def test_other_bounds_are_another_search(models):
    record.write({LIST: HELD})

    assert record.is_known(LIST)
    assert not record.is_known(Run(LIST.file, LIST.title, ("N=2",)))


def test_what_is_not_as_it_should_be_is_not_recorded(models, monkeypatch, searched):
    monkeypatch.setattr(cli, "search", lambda run: HELD)  # of rules taken away, too

    assert cli.main(["--record"]) == 1
    assert not record.FILE.exists()


def test_two_searches_have_two_names():
    names = [record.name(run) for run in (*VERIFICATIONS, *ABLATIONS)]

    assert len({*names}) == len(names)


def test_the_record_of_the_project_is_of_its_searches():
    assert {*json.loads(record.FILE.read_text())} == {
        record.name(run) for run in (*VERIFICATIONS, *ABLATIONS)
    }
