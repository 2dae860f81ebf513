"""Bugs planted in what moves one message by hand: in who decides, what is staged, listed and kept.

Owns the patches, like `mutants`.
"""

from planting import Edit, Mutant, planted

_MOVING = "cassq.reaping.rescheduling"
_HAND_OVER = "cassq.reaping.hand_over"
_SOURCES = "cassq.reaping.sources"
_KEEPER = "cassq.reaping.keeper"
_BY_HAND = "cassq.pipes.by_hand"
_TESTS = "tests/unit/reaping/test_rescheduling.py"
_PUT_OFF = "tests/unit/reaping/test_put_off.py"


def _moved(name: str, module: str, old: str, new: str) -> Mutant:
    """Return a bug of one edit that histories find in which messages are moved by hand."""
    return planted(name, module, old, new, about="moves")


MOVING_MUTANTS: tuple[Mutant, ...] = (
    # Staged, decided, listed
    planted(
        "move a message whatever happened to it since it was read",
        _HAND_OVER,
        "Transaction(Advance(source.head.op, replace(",
        "Transaction(Advance(self._storage.load_pipe(source.pipe).head.op, replace(",
        test=f"{_TESTS}::TestADecision::test_is_refused_whatever_came_while_a_pipe_was_staged",
    ),
    Mutant(
        "stage what a message is moved to once that is decided",
        (
            Edit(
                _HAND_OVER,
                "        pipe = new_pipe_id(from_ms)\n",
                '        pipe = getattr(self, "pipe", None) or new_pipe_id(from_ms)\n',
            ),
            Edit(
                _MOVING,
                "        return self._hand_over.stage(like, [item], max(now_ms, rest_ms), runs)",
                "        from cassq.model.ids import new_pipe_id\n"
                "        pipe = self._hand_over.pipe = new_pipe_id(max(now_ms, rest_ms))\n"
                "        entry = replace(like, pipe=pipe, moved_from=like.pipe, shelf=Shelf.SORTED)\n"
                "        return self._stage_later(entry, like, [item], max(now_ms, rest_ms), runs)",
            ),
            Edit(
                _MOVING,
                "    def _list(self, entry: PipeEntry) -> None:\n",
                "    def _stage_later(self, entry, *arguments):\n"
                "        self._later = arguments\n"
                "        return entry\n\n"
                "    def _list(self, entry: PipeEntry) -> None:\n",
            ),
            Edit(
                _MOVING,
                "                self._list(target)\n",
                "                self._hand_over.stage(*self._later)\n                self._list(target)\n",
            ),
        ),
        about="moves",
    ),
    planted(
        "list what a message is to be moved to before that is decided",
        _HAND_OVER,
        "        if self._storage.transact(source.pipe, decision).is_applied:\n",
        "        self.publish(entry, source.estimate_now_ms())\n"
        "        if self._storage.transact(source.pipe, decision).is_applied:\n",
        test=f"{_TESTS}::TestADecision::test_that_comes_too_late_moves_nothing",
    ),
    planted(
        "retire a pipe whose messages were moved to one that stands",
        _SOURCES,
        "        is_moved = not all(map(self._is_gone, source.progress.targets))\n",
        "        is_moved = False\n",
        test=f"{_TESTS}::TestASource::"
        "test_stands_until_what_it_names_is_gone_and_counts_what_went_through_it",
    ),
    planted(
        "let a pipe wait for what was moved from it, and list nothing of that",
        _SOURCES,
        "            self.finish(source)\n        if is_named",
        "            pass\n        if is_named",
        test=f"{_TESTS}::TestADeathBeforeTheListing::test_is_made_up_for_by_a_reaper_once_the_rest_has_ended",
    ),
    planted(
        "retire a pipe where a look at what was moved from it failed",
        "cassq.reaping.reaper",
        "            is_over = is_done and self._sources.may_retire(owned)  # not where that raises\n",
        "            is_over = is_done\n            is_over = is_done and self._sources.may_retire(owned)\n",
        test=f"{_TESTS}::TestASource::test_stands_where_a_look_at_what_it_names_failed",
    ),
    _moved(
        "list a pipe that is over where it stood before, once what was moved from it is gone",
        _SOURCES,
        "                self._left[entry.pipe] = entry\n",
        "                self._storage.publish_pipes(self._queue, [entry], Shelf.DUE)\n",
    ),
    planted(
        "look for a pipe where it moves on to before it is looked for where it was",
        "cassq.model.shelf",
        "Shelf.DUE, Shelf.MOVED)",
        "Shelf.MOVED, Shelf.DUE)",
        test=f"{_TESTS}::TestASourceThatMovesOn::test_is_found_by_who_cancels[4-1]",
    ),
    _moved(
        "take a pile of which one message was moved for moved",
        _KEEPER,
        "            if pile.progress.is_over:\n",
        "            if True:\n",
    ),
    # Who may be moved
    _moved(
        "move what a consumer has",
        _MOVING,
        "    return is_idle(source, run) if run else is_pushed(source, seq)\n",
        "    return run is not None or is_pushed(source, seq)\n",
    ),
    planted(
        "move what is to be a dead letter",
        _MOVING,
        "    return is_idle(source, run) if run else is_pushed(source, seq)\n",
        '    if run and run.state.name == "RETURNED":\n'
        "        return True\n"
        "    return is_idle(source, run) if run else is_pushed(source, seq)\n",
        test="tests/unit/observing/test_purging.py::"
        "test_what_came_back_from_its_last_attempt_is_not_moved_either",
    ),
    planted(
        "move a message only from where it was pushed",
        _MOVING,
        "            now_at = find_moved(self._storage, self._by_hand.targets_of(entry), message_id)\n",
        "            now_at = None\n",
        test=f"{_TESTS}::TestADeathBeforeTheListing::test_is_made_up_for_by_the_next_call",
    ),
    _moved(
        "look for what was moved only where this process has heard of due times",
        _BY_HAND,
        "        state = self._storage.load_pipe(entry.pipe)\n        return Progress",
        "        from cassq.model.uses import uses_due\n"
        "        is_known = uses_due(self._context.settings)\n"
        "        state = self._storage.load_pipe(entry.pipe) if is_known else None\n"
        "        return Progress",
    ),
    # What is kept, and what is not
    _moved(
        "begin the attempts anew of what is moved",
        _HAND_OVER,
        "        rolled_back=0,\n",
        "        rolled_back=0,\n        attempt=1,\n",
    ),
    _moved(
        "take what came back for what was never handed out once it is moved",
        _MOVING,
        "        runs = [resting(run, 1, 1, rest_ms)] if run else []\n",
        "        runs = []\n",
    ),
    planted(
        "end the rest of a message that gets another priority",
        _MOVING,
        "        rest_ms = run.not_before_ms if run and place.due_ms is None else item.due_ms\n",
        "        rest_ms = item.due_ms\n",
        test=f"{_TESTS}::TestAMessageThatCameBack::test_keeps_its_attempts_its_reason_and_its_rest",
    ),
    planted(
        "let a message rest on that is moved to now",
        _MOVING,
        "        rest_ms = run.not_before_ms if run and place.due_ms is None else item.due_ms\n",
        "        rest_ms = max(run.not_before_ms, item.due_ms) if run else item.due_ms\n",
        test=f"{_PUT_OFF}::test_it_goes_on_with_its_attempts_and_is_a_dead_letter_after_the_last",
    ),
    _moved(
        "count the delay of what is moved from its push on",
        _MOVING,
        "            item = item._replace(due_ms=place.due_ms or now_ms)\n",
        "            passed_ms = now_ms - item.origin.pushed_at_ms\n"
        "            item = item._replace(due_ms=place.due_ms - passed_ms if place.due_ms else now_ms)\n",
    ),
    planted(
        "leave a message that is moved its priority",
        _MOVING,
        "            like = replace(like, priority=place.priority)\n",
        "            pass\n",
        test=f"{_TESTS}::TestAMessageThatCameBack::test_keeps_its_attempts_its_reason_and_its_rest",
    ),
    # Who hears of what is listed late, and of what fails besides
    planted(
        "tell nobody of what is listed late by hand",
        _MOVING,
        "            self._hand_over.tell_late()\n",
        "            pass\n",
        test=f"{_TESTS}::TestADeathBeforeTheListing::test_is_told_to_poppers_where_the_listing_is_late[3600]",
    ),
    planted(
        "forget what was listed late where that cannot be told",
        _HAND_OVER,
        "            self._is_late = True\n            raise\n",
        "            raise\n",
        test=f"{_TESTS}::TestADeathBeforeTheListing::test_is_told_to_poppers_by_a_reaper_too",
    ),
    planted(
        "raise what fails after what was asked for is done",
        _BY_HAND,
        "        with suppress(CassqError):\n",
        "        with suppress():\n",
        test=f"{_TESTS}::TestASourceThatIsOverByThat::test_is_ended_by_a_cancellation[lose]",
    ),
    # What rests for long
    planted(
        "put off what may expire",
        _HAND_OVER,
        "        and not _may_expire(source)\n",
        "",
        test=f"{_PUT_OFF}::test_what_may_expire_stays_with_the_time_that_it_has[how0]",
    ),
    planted(
        "put off what comes back sooner, with what rests for long",
        _HAND_OVER,
        "            and run.not_before_ms > far_ms\n",
        "",
        test=f"{_PUT_OFF}::test_a_pipe_of_which_something_comes_back_sooner_stays[other0]",
    ),
    planted(
        "put off messages of a pipe that may get more",
        _HAND_OVER,
        "        source.is_exhausted\n        and not",
        "        not",
        test=f"{_PUT_OFF}::test_a_pipe_that_may_get_more_stays",
    ),
    planted(
        "leave what was moved on, or has ended, where it is due in a year",
        _BY_HAND,
        "            if fenced and upkeep.step_over(fenced) and fenced.is_over:\n",
        "            if False:\n",
        test=f"{_PUT_OFF}::test_what_was_put_off_for_a_year_and_ended_leaves_nothing_behind[cancel]",
    ),
    # Who cancels meanwhile
    planted(
        "cancel what was moved meanwhile",
        "cassq.storage.cassandra.transactions",
        "cql.SET_FIRST_MARK if isinstance(head, Cancel) else cql.SET_MARK",
        "cql.SET_MARK",
        test="tests/simulation/test_cluster.py::TestCancel::"
        "test_it_leaves_the_mark_of_a_message_that_was_moved",
    ),
    planted(
        "cancel what was moved meanwhile, on SQLite",
        "cassq.storage.sqlite.transactions",
        'f"op = ? WHERE pipe = ? AND cursor < ? AND NOT EXISTS ({marked})"',
        'f"op = ? WHERE pipe = ? AND cursor < ? AND (1 OR NOT EXISTS ({marked}))"',
        test="tests/contract/test_transactions_contract.py::"
        "TestCancel::test_it_leaves_the_mark_of_a_message_that_was_moved[memory]",
    ),
    # Beside commits that land late
    planted(
        "forget where a message was moved once a commit of it lands",
        "cassq.storage.cassandra.rows",
        "place = seq, mark.end is End.MOVED\n",
        "place = seq, False\n",
        test="tests/property/test_stored_rows.py"
        "::test_where_messages_were_moved_stands_beside_a_commit_that_landed_later",
    ),
    planted(
        "replace where a message was moved by a commit of it that lands",
        "cassq.storage.sqlite.transactions",
        "\" WHERE ending <> 'moved' AND (",
        '" WHERE (',
        test="tests/contract/test_marks_contract.py::TestMarks"
        "::test_where_messages_were_moved_is_told_whatever_commit_lands[memory-late0-True]",
    ),
)
