"""Bugs planted in leases that a token names: in what a process believes of a lease that it did not take."""

from planting import Edit, Mutant, planted

_LEASES = "cassq.popping.leases"
_RETURNS = "cassq.popping.lease_returns"
_MARKS = "cassq.popping.lease_marks"
_ROWS = "cassq.pipes.lent_rows"
_TESTS = "tests/unit/popping/test_leases.py::"

TOKEN_MUTANTS: tuple[Mutant, ...] = (
    planted(
        "mark under a lease that does not stand any more",
        _LEASES,
        "                if not seen.left or seen.row is None:\n",
        "                if seen.left and seen.row is None:\n"
        "                    lent = LentRow(lease, seen.left, self._clock.latest() + 60)\n"
        "                    self._marks.write([LeaseCommit(lease, lent, seen.left)], told)\n"
        "                    continue\n"
        "                if not seen.left or seen.row is None:\n",
        about="tokens",
    ),
    planted(
        "count what is left of a lease from the answer on",
        _ROWS,
        "        stretch = self._storage.read_stretch(pipe, leases[0].first, last)\n",
        "        stretch = self._storage.read_stretch(pipe, leases[0].first, last)\n"
        "        asked_at = self._clock.latest()\n",
        test="tests/unit/pipes/test_lent_rows.py::"
        "test_it_counts_from_before_the_question_however_long_the_answer_took",
    ),
    planted(
        "add the margin for the clocks to what is left of a lease",
        _ROWS,
        "    return row.leased_at_ms + row.lease_ms - now_ms\n",
        "    return row.leased_at_ms + row.lease_ms - now_ms + 500\n",
        test="tests/unit/pipes/test_lent_rows.py::test_it_is_over_here_before_anybody_may_judge_it_over",
    ),
    planted(
        "begin a lease anew whatever its leased_at is by now",
        _ROWS,
        "RunChange(row, row.lease_id, row.leased_at_ms, is_leased_now=True)",
        "RunChange(row, row.lease_id, None, is_leased_now=True)",
        test=_TESTS + "TestAnExtension::test_is_conditional_on_the_beginning_that_was_read",
    ),
    planted(
        "keep what has ended of a settled lease under its id",
        _ROWS,
        "    if how is None:\n        return settled\n",
        "    if how is None:\n"
        "        kept = replace(settled, state=row.state, lease_id=row.lease_id)\n"
        "        return replace(kept, leased_at_ms=row.leased_at_ms)\n",
        test=_TESTS + "TestASettlement::test_leaves_nothing_under_the_lease",
    ),
    planted(
        "commit at home after the own clock has run out",
        _LEASES,
        "        return lent if lent and self._clock.latest() < lent.ends_at else None\n",
        "        if lent:\n            lent.ends_at += 60\n        return lent\n",
        about="tokens",
    ),
    Mutant(
        "return a part of a lease before the rest is marked",
        (
            Edit(_LEASES, "            if kept:\n", "            if kept and not going:\n"),
            Edit(
                _LEASES,
                "            if rows is not None:\n                self._note_returned(",
                "            if rows is not None:\n"
                "                if kept and going:\n"
                "                    lent = LentRow(seen.row, seen.left, seen.ends_at)\n"
                "                    self._marks.write([LeaseCommit(lease, lent, kept)], {})\n"
                "                self._note_returned(",
            ),
        ),
        about="tokens",
    ),
    planted(
        "let a token name what a popper has",
        _ROWS,
        "            if is_meant and is_leased and run.holder == self._holder:\n",
        "            if is_meant and is_leased:\n",
        test=_TESTS + "TestWhoInventsATokenOrLearnsALease::test_what_a_popper_has_no_token_names",
    ),
    planted(
        "lend what its client wants no more",
        "cassq.popping.lessor",
        "        if self._is_unwanted:\n",
        "        if self._is_unwanted and self._popped.give_back() is not None:\n",
        test=_TESTS + "TestALease::test_of_a_future_that_is_given_back_while_it_ends_is_one_client_s",
    ),
    planted(
        "say that a rejection happened of what others have",
        _RETURNS,
        "    if is_gone or any(how.is_last and seq not in seen.buried for seq, how in going.items()):\n",
        "    if is_gone:\n",
        test=_TESTS + "TestASettlement::test_whose_rejection_never_arrived_before_others_took_it_raises",
    ),
    planted(
        "let what is committed of many stretches stand for itself",
        _ROWS,
        "        how = back.get(seq, how)\n",
        "        how = back.get(seq)\n",
        test=_TESTS + "TestASettlement::test_of_many_stretches_takes_one_transaction",
    ),
    planted(
        "join the marks of two leases",
        _MARKS,
        "        marks = [to_marks(each.lent, each.parts) for each in commits]\n",
        "        marks = [to_marks(each.lent, each.parts) for each in commits]\n"
        "        if len(marks) > 1:\n"
        "            joined = type(marks[0][0])(marks[0][0].first, marks[-1][-1].last, marks[0][0].end)\n"
        "            marks = [[joined], *[[] for _ in marks[1:]]]\n",
        test=_TESTS + "TestManyLeasesAtOnce::test_each_has_a_mark_of_its_own",
    ),
)
