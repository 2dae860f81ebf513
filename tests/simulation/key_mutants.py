"""Bugs planted in what frees a key: in which marks count, what the floor passes, and what is returned.

Owns the patches, like `mutants`.
"""

from planting import Mutant, planted

_PROGRESS = "cassq.model.progress"
_TESTS = "tests/unit/pipes/test_keyed_pipe.py::"

KEY_MUTANTS: tuple[Mutant, ...] = (
    planted(
        "take a run for over by a commit of an earlier attempt",
        _PROGRESS,
        " and not any(self.ended_before(run)):\n",
        ":\n",
        test=_TESTS + "test_a_commit_that_lands_late_ends_its_message_and_leaves_its_key_busy",
    ),
    planted(
        "let the floor pass a message that a commit of an earlier attempt ended",
        _PROGRESS,
        "            if first <= floor:\n",
        "            if first <= floor and any(self.left_of(self.runs[first])):\n",
        test=_TESTS + "test_a_commit_that_lands_late_ends_its_message_and_leaves_its_key_busy",
    ),
    planted(
        "take a run for over by the clock",
        "cassq.pipes.upkeep",
        "    return _bring_back(fenced, ended) is not None\n",
        "    for run in ended:\n        del fenced.progress.runs[run.first]\n    return True\n",
        test=_TESTS + "test_a_key_that_a_late_commit_left_busy_is_free_once_its_run_was_returned",
    ),
    planted(
        "count what had ended before a run was taken again as busy",
        "cassq.pipes.owned_pipe",
        "        marks = [mark for plan in plans for mark in plan.marks]\n",
        "        marks = []\n",
        test=_TESTS + "test_what_had_ended_when_a_run_was_taken_again_is_not_busy_in_the_new_attempt",
    ),
    planted(
        "bury a message without its key",
        "cassq.pipes.burial",
        "    keys = _keys_of(storage, entry.pipe, run) if entry.is_keyed else {}\n",
        "    keys = {}\n",
        test=_TESTS + "test_a_letter_has_the_key_and_its_mark_frees_it",
    ),
)
