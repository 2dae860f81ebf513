"""Bugs planted in what frees a key: in which marks count, what the floor passes, and what is returned.

Owns the patches, like `mutants`.
"""

from planting import Mutant, planted

_PROGRESS = "cassq.model.progress"
_TESTS = "tests/unit/pipes/test_keyed_pipe.py::"
_LISTS = "tests/unit/observing/test_keyed_lists.py::"
_PUSHES = "tests/unit/pushing/test_keyed_pushes.py::"

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
        "lease a window in a pipe of a slot",
        "cassq.pipes.window_steps",
        "        and not fenced.entry.is_keyed\n",
        "",
        test=_TESTS + "test_no_window_begins",
    ),
    planted(
        "let two lanes push messages of one slot",
        "cassq.pushing.request_lines",
        "            if kind.slot == NO_SLOT or kind.slot % self._lanes == lane:\n",
        "            if True:\n",
        test=_PUSHES + "TestTheBuffer::test_gives_each_lane_its_own_slots_and_what_has_none_to_whoever_asks",
    ),
    planted(
        "list pipes of slots for every popper",
        "cassq.pipes.pipe_list",
        "        if self._has_keyed and uses_keys(",
        "        if uses_keys(",
        test=_LISTS + "test_pipes_of_slots_are_listed_for_those_alone_who_ask_for_them",
    ),
    planted(
        "put a message back without its key",
        "cassq.observing.dead_letters",
        ', key=letter.key or "")\n',
        ")\n",
        test=_PUSHES + "test_a_letter_is_put_back_with_its_key_also_into_another_queue",
    ),
    planted(
        "bury a message without its key",
        "cassq.pipes.burial",
        "    keys = _keys_of(storage, entry.pipe, run) if entry.is_keyed else {}\n",
        "    keys = {}\n",
        test=_TESTS + "test_a_letter_has_the_key_and_its_mark_frees_it",
    ),
)
