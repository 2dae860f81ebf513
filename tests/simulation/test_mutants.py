"""Bugs planted one by one, and each of them is found.

`seeds.json` names the seed that found each one last. A seed stands for another history once the library has
changed, so where it finds nothing any more, others are tried; `tools/simulate --record` writes the file anew.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import rule_table
from explore import JOBS, explore, explore_one
from fork_server import ForkServer
from mutants import MUTANTS
from planting import FAILED, run_test

HERE = Path(__file__).parent
SEEDS = json.loads((HERE / "seeds.json").read_text())

#: So many histories at most may go by without finding a bug.
HISTORIES_MAX = 4000

#: A slow machine may have a thread look once more in time, and mend what a bug did: such a test is run again.
TRIES = 3


@pytest.fixture(scope="session")
def server():
    """The server whose forks the bugs are planted in."""
    with ForkServer() as opened:
        yield opened


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if not m.test], ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant, server, record_property):
    tally = explore_one(SEEDS.get(mutant.name, 0), mutant.name, server)
    if not tally.failures:
        tally = explore(0, HISTORIES_MAX, jobs=JOBS, mutant=mutant.name, failures_max=1)

    assert tally.failures, f"{mutant.name!r} was planted, and {tally.histories} histories broke no promise"
    record_property("seed", tally.failures[0].seed)


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.test], ids=lambda mutant: mutant.name)
def test_a_planted_bug_fails_its_test(mutant, server):
    for _ in range(TRIES):
        ended = run_test(mutant, server)
        if ended.returncode == FAILED:
            break

    assert ended.returncode == FAILED, f"{mutant.name!r} was planted: {ended.stdout}"


def test_every_bug_has_a_place_to_be_planted_in():
    """The tests above tell so, too, but take minutes."""
    edits = [(mutant.name, edit) for mutant in MUTANTS for edit in mutant.edits]
    sources = {edit.module: Path(find_spec(edit.module).origin).read_text("utf-8") for _, edit in edits}
    assert [name for name, edit in edits if sources[edit.module].count(edit.old) != 1] == []


def test_no_bug_names_what_its_module_does_not_know(tmp_path):
    """A bug that fails where it is planted would be found for that."""
    for place, mutant in enumerate(MUTANTS):
        for module in {edit.module for edit in mutant.edits}:
            source = Path(find_spec(module).origin).read_text("utf-8")
            for edit in mutant.edits:
                source = source.replace(edit.old, edit.new) if edit.module == module else source
            (tmp_path / f"{module}-{place}.py").write_text(source, "utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,F822,F823", tmp_path],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout


def test_every_recorded_seed_is_of_a_bug_that_is_still_planted():
    assert SEEDS.keys() == {mutant.name for mutant in MUTANTS if not mutant.test}


class TestTheForkServer:
    def test_tells_how_a_program_ended_and_what_it_said(self, server):
        ended = server.run("timeit", ["-n1", "-r1", "print('here')"])
        assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, "here")

    def test_does_not_take_its_own_errors_for_a_test_that_failed(self, server):
        assert server.run("no_such_module", []).returncode == os.EX_SOFTWARE

    def test_runs_the_next_program_after_one_that_hung(self):
        with ForkServer() as server:
            with pytest.raises(subprocess.TimeoutExpired):
                server.run("timeit", ["while True: pass"], timeout_s=0)
            assert server.run("timeit", ["-n1", "-r1", "pass"]).returncode == 0


class TestTheTableOfRules:
    def test_has_a_row_for_each_rule_of_the_models(self):
        assert [row.rule for row in rule_table.rows()] == [rule.name for rule in rule_table.RULES]

    def test_names_bugs_that_are_planted(self):
        known = {mutant.name for mutant in MUTANTS}

        assert {row.mutant for row in rule_table.rows() if row.mutant} <= known

    def test_says_why_where_no_bug_is_planted(self):
        assert all(row.mutant or row.why for row in rule_table.rows())

    def test_stands_in_the_docs_as_it_is(self):
        assert rule_table.text() in rule_table.PAGE.read_text(encoding="utf-8"), "tools/simulate --record"
