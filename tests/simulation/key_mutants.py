"""Bugs planted in what frees a key: in which marks count, what the floor passes, and what is returned.

Owns the patches, like `mutants`.
"""

from planting import Mutant, planted

_PROGRESS = "cassq.model.progress"
_SLOTS = "cassq.popping.slots"
_SLOT = "cassq.popping.slot"
_HAND = "cassq.popping.keyed_hand"
_GATE = "cassq.popping.key_gate"
_SLOT_TESTS = "tests/unit/popping/test_slots.py::"
_BEFORE = "tests/unit/popping/test_slot.py::TestWhatAnotherPopperTookBefore::"
_HELD = "tests/unit/popping/test_slot.py::TestWhatIsHeld::"
_TURNS = "tests/unit/popping/test_keyed_fetcher.py::TestTurns::"
_FETCHER = "tests/unit/popping/test_keyed_fetcher.py::TestLeaving::"
_HAND_TESTS = "tests/unit/popping/test_keyed_hand.py::"
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
    planted(
        "go on with a slot after its order was altered",
        _SLOTS,
        "            self._let_go(slot.number, 0.0)  # what was taken in another order is no order\n",
        "            slot._is_ordered = slot.hand._is_ordered = not slot._is_ordered\n",
        test=_SLOT_TESTS + "TestAnOrderThatIsAltered::test_has_the_slot_won_anew",
    ),
    planted(
        "take a slot whose row somebody else changed",
        _SLOTS,
        "            return op if self._storage.change_slot(incarnation, number, seen, op) else None\n",
        "            self._storage.change_slot(incarnation, number, seen, op)\n            return op\n",
        test=_SLOT_TESTS + "TestASlot::test_is_left_alone_where_its_row_was_changed_meanwhile",
    ),
    planted(
        "win a slot with the same op again and again",
        _SLOTS,
        "        incarnation, op = self._context.record.incarnation, new_token()\n",
        "        incarnation = self._context.record.incarnation\n"
        "        op = slot_claim(incarnation, self._holder)\n",
        test=_BEFORE + "test_is_safe_from_an_attempt_to_win_that_lands_late",
    ),
    planted(
        "take a slot's pipes from a list that was read before the slot was won",
        _SLOTS,
        "            self._list()  # what was listed before a row was won counts for nothing\n",
        "            pass\n",
        test=_BEFORE + "test_is_known_also_of_a_pipe_that_came_just_before_the_slot_was_won",
    ),
    planted(
        "go on with what was known of a slot before it was lost",
        _SLOTS,
        "        slot = self._won[number] = Slot("
        "self._context, number, op, self._taker, self._on_pipe_over)\n",
        "        made = Slot(self._context, number, op, self._taker, self._on_pipe_over)\n"
        "        slot = self._won[number] = self.__dict__.setdefault('_old', {}).setdefault(number, made)\n"
        "        slot._op, slot.is_lost = op, False\n",
        test=_BEFORE + "test_is_known_also_to_who_had_the_slot_before",
    ),
    planted(
        "load one pipe of a slot at each look",
        _SLOT,
        "        for entry in entries:\n            sent_at",
        "        for entry in entries[: len(self._pipes) + 1]:\n            sent_at",
        test=_BEFORE + "test_is_known_before_anything_is_handed_out",
    ),
    planted(
        "hand out of a slot without another look at its row",
        _SLOT,
        "        if self._storage.read_slot(incarnation, self.number, is_settled=False) != self._op:\n",
        "        if not incarnation:\n",
        test=_SLOT_TESTS
        + "TestASlot::test_that_another_popper_wins_gives_nothing_more_and_its_takes_go_back",
    ),
    planted(
        "let out a message whose key is busy",
        _GATE,
        "                elif key not in busy and (",
        "                elif (",
        about="keys",
    ),
    planted(
        "let out a message while an earlier one of its key rests",
        _GATE,
        "            if is_ordered:\n",
        "            if is_ordered and standing is not Standing.RESTING:\n",
        about="keys",
    ),
    planted(
        "take from a younger pipe of a source before the older is known to the end",
        _SLOT,
        "            if self._is_ordered and not owned.is_exhausted:\n",
        "            if not owned:\n",
        test=_SLOT_TESTS
        + "TestASlot::test_gives_no_younger_pipe_of_a_source_before_the_older_is_known_to_the_end",
    ),
    planted(
        "hold what waits for somebody else",
        _HAND,
        "        self._give_back({*judged.hopeless, *last}, ",
        "        self._give_back(last, ",
        test=_BEFORE + "test_has_what_waits_for_it_given_back",
    ),
    planted(
        "let out what is not leased any more",
        _HAND,
        "            if run.is_live:  # else it comes again, and keeps its key until then\n",
        "            if run:\n",
        test=_HELD + "test_is_let_out_under_a_running_lease_alone",
    ),
    planted(
        "take what others have for what came back",
        _HAND,
        "        return Standing.RESTING if run.state is RunState.RETURNED else Standing.FOREIGN\n",
        "        return Standing.RESTING\n",
        test=_HAND_TESTS + "TestAKey::test_that_somebody_else_works_on_is_busy",
    ),
    planted(
        "hold what has its last attempt",
        _HAND,
        "        self._give_back({*judged.hopeless, *last}, ",
        "        self._give_back(judged.hopeless, ",
        test="tests/unit/popping/test_keyed_hand.py::TestTheLastAttempt::test_is_held_for_nobody",
    ),
    planted(
        "take a burial of its own for another popper's",
        _HAND,
        "        if run.is_burial and run.holder == self._holder:\n",
        "        if False:\n",
        test="tests/unit/popping/test_keyed_hand.py::TestAKey::"
        "test_is_not_another_popper_s_while_a_dead_letter_is_written",
    ),
    planted(
        "heed the rows of one rollback one by one",
        "cassq.pipes.fenced_pipe",
        "        self._notes.append((notes, lease_id))\n",
        "        self._notes.extend(((note,), lease_id) for note in notes)\n",
        test=_SLOT_TESTS + "TestASlot::test_heeds_the_rows_of_one_rollback_together",
    ),
    planted(
        "heed a row of a slot that is told once it was taken again",
        "cassq.pipes.fenced_pipe",
        "known is not None and known.lease_id != lease_id\n",
        "not self.pipe\n",
        test=_SLOT_TESTS + "TestASlot::test_heeds_no_row_that_is_told_once_it_was_taken_again",
    ),
    planted(
        "take nothing that came back where nothing may be held any more",
        _SLOT,
        "            if wanted <= 0 and not owned.has_due:\n",
        "            if wanted <= 0:\n",
        test=_SLOT_TESTS + "TestWhatIsHeld::test_is_bounded_and_what_came_back_is_taken_all_the_same",
    ),
    planted(
        "list no pipes while slots give all that is wanted",
        "cassq.popping.fetcher",
        " or not self._pipes.is_read_within(LOOK_S)\n",
        "\n",
        test=_TURNS + "test_come_to_pipes_that_were_opened_while_slots_gave_all_that_was_wanted",
    ),
    planted(
        "take from all pipes of a slot before anything is handed out",
        _SLOT,
        "            if has_taken and self._clock.now() >= until:\n",
        "            if False:\n",
        test=_SLOT_TESTS + "TestASlot::test_hands_out_what_it_has_while_its_lease_is_young[one slot]",
    ),
    planted(
        "begin with the oldest pipes again where the time was over",
        _SLOT,
        "for each in sorted(alike, key=self._turn_of)]",
        "for each in alike]",
        test=_SLOT_TESTS + "TestASlot::test_takes_from_each_pipe_in_turn_where_there_is_no_time_for_all",
    ),
    planted(
        "give a lower priority a turn of a slot before a higher one's next",
        _SLOT,
        "key=lambda owned: owned.entry.priority)",
        "key=lambda _: 0)",
        test=_SLOT_TESTS
        + "TestASlot::test_takes_nothing_of_a_lower_priority_while_there_is_no_time_for_more_than_the_higher",
    ),
    planted(
        "take from all slots before anything is handed out",
        _SLOTS,
        " or (found and self._clock.now() >= until):\n",
        ":\n",
        test=_SLOT_TESTS + "TestASlot::test_hands_out_what_it_has_while_its_lease_is_young[many slots]",
    ),
    planted(
        "keep a slot of which something is held from who waits there for other types",
        "cassq.popping.fetcher",
        "        if wanted and (left := self._slots.leave_for(wanted)):\n",
        "        if wanted and (left := self._slots.leave_for(wanted, is_held_kept=True)):\n",
        test=_FETCHER + "test_its_only_slot_to_who_waits_there_for_types_that_it_does_not_take",
    ),
    planted(
        "keep a slot in which nothing is left for oneself",
        "cassq.popping.fetcher",
        "        if foreign:\n            self._slots.leave_for(foreign, is_held_kept=True)\n",
        "",
        test=_FETCHER + "test_a_slot_of_which_it_takes_nothing_though_nobody_waits",
    ),
    planted(
        "leave slots that have nothing of the types that others wait for",
        _SLOT,
        "        return any(owned.has_due or owned.has_news() for owned in meant)\n",
        "        return True\n",
        test=_SLOT_TESTS + "TestGivingUp::test_for_a_type_leaves_those_that_have_something_of_it",
    ),
    planted(
        "leave a slot to who waits for types of which it has nothing",
        "cassq.popping.fetcher",
        "        if own and self.rivals.count(own) and (left := self._slots.leave_some()):\n",
        "        if own and self.rivals.count_all() and (left := self._slots.leave_some()):\n",
        test=_FETCHER + "test_no_slot_to_who_waits_for_types_that_are_not_there",
    ),
    planted(
        "take a list of the pipes of slots for a snapshot",
        _SLOTS,
        'keys == "ordered" and any(is_younger(each, known) for each in entries):\n',
        'keys == "ordered" and not known:\n',
        test=_SLOT_TESTS + "TestASlot::test_in_order_gives_no_younger_pipe_where_a_look_missed_the_older",
    ),
    planted(
        "take from pipes of slots that came after the first of two lists",
        _SLOTS,
        "as_far_as(entries, again.entries)",
        "again.entries",
        test=_SLOT_TESTS + "TestASlot::test_in_order_gives_nothing_that_came_after_the_first_of_two_looks",
    ),
)
