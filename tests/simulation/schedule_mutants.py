"""Bugs planted in what is due later: in who tells when, who holds, who moves a pile, and who finds it again.

Owns the patches, like `mutants`.
"""

from planting import Edit, Mutant, planted

_HAND_OVER = "cassq.reaping.hand_over"
_SOURCES = "cassq.reaping.sources"
_KEEPER = "cassq.reaping.keeper"


def _scheduled(name: str, module: str, old: str, new: str) -> Mutant:
    """Return a bug of one edit that histories about the schedule find."""
    return planted(name, module, old, new, about="schedule")


SCHEDULE_MUTANTS: tuple[Mutant, ...] = (
    # When, and not before
    _scheduled(
        "tell the database's clock by the earliest it may show",
        "cassq.runtime.database_clock",
        "        return self.told_ms + 1 + 1000 * (latest - self.asked_at) * (1 + DRIFT)\n",
        "        return self.at_least_ms(latest)\n",
    ),
    _scheduled(
        "hold by the database's clock as it was before it was asked",
        "cassq.runtime.database_clock",
        "        return self.answered_at + (database_ms - self.told_ms) / 1000 * (1 + DRIFT)\n",
        "        return self.asked_at + (database_ms - self.told_ms) / 1000 * (1 + DRIFT)\n",
    ),
    _scheduled(
        "hold by the database's clock alone",
        "cassq.runtime.clock",
        '        return reading.until_shown(database_ms) if reading else float("inf")\n',
        "        return database_ms / 1000\n",
    ),
    planted(
        "keep the reading that leaves least open, be it at odds with the last answer",
        "cassq.runtime.database_clock",
        "    is_at_odds = heard_most < least or most < heard_least\n",
        "    is_at_odds = False\n",
        test="tests/unit/runtime/test_database_clock.py::test_a_clock_that_was_set_is_believed_at_once[4000]",
    ),
    planted(
        "put the upper bound of one answer against the lower one of another",
        "cassq.runtime.database_clock",
        "    return heard if is_at_odds or heard_most - heard_least <= most - least else known\n",
        "    return Reading(heard.told_ms, known.asked_at + (heard.told_ms - known.told_ms) / 1000, "
        "heard.answered_at)\n",
        test="tests/unit/runtime/test_database_clock.py::test_both_bounds_are_of_one_answer_though_nodes_differ",
    ),
    _scheduled(
        "hold nothing",
        "cassq.popping.hand",
        "            if dues and self._until_shown(max(dues)) > now:\n",
        "            if dues and self._until_shown(max(dues)) == now:\n",
    ),
    _scheduled(
        "hand out a batch of which something is due",
        "cassq.popping.hand",
        "            if dues and self._until_shown(max(dues)) > now:\n",
        "            if dues and self._until_shown(min(dues)) > now:\n",
    ),
    _scheduled(
        "let go of everything that is held at once",
        "cassq.popping.holding",
        "        while heap and self._until_shown(heap[0][0]) <= now:\n",
        "        while heap:\n",
    ),
    _scheduled(
        "take the first message that is not near, too",
        "cassq.pipes.dues",
        "                    yield seq, due_ms\n",
        "                    yield seq + 1, due_ms\n",
    ),
    # Moving
    planted(
        "move a pile whatever happened to it since it was read",
        _HAND_OVER,
        "Transaction(Advance(source.head.op, replace(",
        "Transaction(Advance(self._storage.load_pipe(source.pipe).head.op, replace(",
        test="tests/unit/reaping/test_schedule_keeper.py::test_a_cancellation_beside_the_move_is_not_lost",
    ),
    _scheduled(
        "move what has ended, too",
        _HAND_OVER,
        "        left = list(pile.progress.missing(head.cursor + 1, head.last))\n",
        "        left = [Range(head.cursor + 1, head.last)]\n",
    ),
    _scheduled(
        "move messages as they come",
        _HAND_OVER,
        "sorted(items_of(pile.pipe, batches, left), key=lambda item: item.due_ms)",
        "list(items_of(pile.pipe, batches, left))",
    ),
    _scheduled(
        "list a pile for poppers though it is not sorted",
        _KEEPER,
        "[] if _is_taken_from(pile) or _is_sorted(outlines) else self._read(pile)",
        "[]",
    ),
    _scheduled(
        "give messages that are moved new ids",
        _HAND_OVER,
        "        origins=tuple(item.origin for item in items),\n",
        "",
    ),
    _scheduled(
        "forget when messages were pushed that are moved",
        _HAND_OVER,
        "yield Item(due_ms, batch.ttl_ms, origin, *",
        "yield Item(due_ms, batch.ttl_ms, origin._replace(pushed_at_ms=due_ms), *",
    ),
    _scheduled(
        "publish what a pile is to be moved to before that is decided",
        _HAND_OVER,
        "        if self._storage.transact(source.pipe, decision).is_applied:\n",
        "        self.publish(entry, source.estimate_now_ms())\n"
        "        if self._storage.transact(source.pipe, decision).is_applied:\n",
    ),
    _scheduled(
        "let a pile go on before what it was moved to is published",
        _KEEPER,
        "            self.sources.finish(pile)\n            if pile.progress.is_over:\n",
        "            if pile.progress.is_over:\n",
    ),
    planted(
        "delete what is staged without moving the op of its pile",
        _KEEPER,
        "            if pile.progress.window or not pile.advance(pile.head):\n",
        "            if pile.progress.window:\n",
        test="tests/unit/reaping/test_rescheduling.py::"
        "TestADecision::test_that_lands_late_is_refused_once_what_was_staged_is_deleted",
    ),
    Mutant(
        "delete what is staged though it is listed, and its pile names it",
        (
            Edit(
                _KEEPER,
                "        for shelf in (Shelf.SCHEDULED, Shelf.DUE, Shelf.MOVED):\n",
                "        for shelf in ():\n",
            ),
            Edit(_KEEPER, "            if entry.pipe in pile.progress.targets:\n", "            if False:\n"),
        ),
        test="tests/unit/reaping/test_rescheduling.py::"
        "TestADeathBeforeTheListing::test_is_made_up_for_by_a_keeper_in_ten_minutes",
    ),
    _scheduled(
        "drain a pile where it was taken from",
        _KEEPER,
        "        last = max([pile.head.cursor, *(batch.last for batch in outlines[-1:])])\n",
        "        last = pile.head.cursor\n",
    ),
    # Finding again
    _scheduled(
        "let the floor pass what was moved",
        "cassq.model.progress",
        "        if self._moved:\n            floor",
        "        if False:\n            floor",
    ),
    Mutant(
        "let a pile retire before what it was moved to",
        (
            Edit(
                _SOURCES,
                "next((target for target in targets if not self._is_gone(target)), None)\n",
                "None\n",
            ),
            Edit(
                _SOURCES,
                "        is_moved = not all(map(self._is_gone, source.progress.targets))\n",
                "        is_moved = False\n",
            ),
        ),
        test="tests/unit/reaping/test_schedule_keeper.py::"
        "test_a_pile_stays_until_what_it_was_moved_to_is_gone",
    ),
    _scheduled(
        "cancel a message only where it was pushed",
        "cassq.observing.purging",
        "            now_at = find_moved(self._storage, self._by_hand.targets_of(entry), message_id)\n",
        "            now_at = None\n",
    ),
    _scheduled(
        "tell of a message only where it was pushed",
        "cassq.observing.inspection",
        "            moved = find_moved(self._storage, progress.targets, message_id)\n",
        "            moved = None\n",
    ),
    _scheduled(
        "cancel by what this process has heard of due times",
        "cassq.pipes.shelves",
        "    if len(known) < len(Shelf) and len(shelves_of(context.record.read().settings)) > len(known):\n",
        "    if False:\n",
    ),
    planted(
        "count what a purge ended in a pipe as of the last look at it",
        "cassq.observing.purging",
        "            purged[entry.pipe] += self._purge_pipe(entry)",
        "            purged[entry.pipe] = self._purge_pipe(entry)",
        test="tests/unit/reaping/test_rescheduling.py::"
        "TestASourceThatMovesOn::test_is_purged_with_what_it_names",
    ),
    _scheduled(
        "forget the older pipes of what is due",
        "cassq.pipes.pipe_list",
        "for entry in (*before, *listing.entries)}",
        "for entry in listing.entries}",
    ),
    planted(
        "look for what is staged as if nobody were ever suspended",
        _KEEPER,
        "before_ms = self._looked_after_ms\n",
        "before_ms = self._looked_after_ms and self._now_ms\n",
        test="tests/unit/reaping/test_occurrences.py"
        "::test_what_is_staged_and_never_decided_is_found_by_who_was_suspended_for_hours",
    ),
    planted(
        "leave a pipe until a lease ends where something has come near since the take",
        "cassq.pipes.owned_pipe",
        "if (next_ms := self.horizon.next_ms) is not None:",
        "if next_ms := self.horizon.next_ms:",
        test="tests/unit/pipes/test_dues.py"
        "::test_what_has_come_near_since_the_take_may_be_taken_now_whatever_is_out",
    ),
    planted(
        "put all that is written together among what is due soon once one message has waited a moment",
        "cassq.model.schedule",
        "class_of(lead_s * WAITED_PART)",
        "class_of(lead_s)",
        test="tests/unit/model/test_due_classes.py"
        "::test_what_waited_to_be_stored_stays_in_its_class_until_its_lead_has_halved",
    ),
    planted(
        "give back what has no due times to poppers that are past it",
        "cassq.popping.hand",
        "            if not batch_slice.batch.dues:\n                continue\n",
        "",
        test="tests/unit/popping/test_holding.py::test_what_has_no_due_times_is_not_cut_off",
    ),
)
