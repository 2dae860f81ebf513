"""Bugs planted in the journal: in where the event of a pipe is looked for, and in what waits for it."""

from planting import Mutant, planted

_JOURNAL = "cassq.topics.journal"
_JOURNALING = "cassq.reaping.journaling"
_TESTS = "tests/unit/reaping/test_journaling.py::"
_LOOKED_FOR = _TESTS + "TestWhereTheEventIsLookedFor::"

JOURNAL_MUTANTS: tuple[Mutant, ...] = (
    planted(
        "publish the event of a pipe before its head names a place",
        _JOURNALING,
        '        is_wanted = self._context.settings.journal != "off"\n',
        '        is_wanted = self._context.settings.journal != "off"\n'
        "        if is_wanted:\n"
        "            place = self._open().end(fenced.pipe)\n"
        "            self._open().write([(self._event_of(fenced.entry), place)])\n",
        test=_TESTS + "TestWhoDies::test_at_any_call_leaves_a_pipe_that_the_next_one_ends_with_one_event",
    ),
    planted(
        "look for an event by the offset of another topic",
        _JOURNAL,
        "place.offset if place.incarnation == self._context.incarnation else 1",
        "place.offset",
        test=_LOOKED_FOR + "test_of_a_topic_that_was_made_anew_it_is_looked_for_in_all_of_it",
    ),
    planted(
        "look for an event in the open segment alone",
        _JOURNAL,
        "reader_of_what_is_left(self._context, self._partition, self._since)",
        "reader_of_what_is_left(self._context, self._partition, max(self._since, head.first))",
        test=_LOOKED_FOR + "test_one_that_stands_in_a_segment_that_was_closed_since_is_found",
    ),
    planted(
        "take an event for published where its place was cleared",
        _JOURNAL,
        "        wanted = {_key_of(each): each for each in requests}\n",
        "        wanted = {_key_of(each): each for each in requests}\n"
        "        if Segments(self._context, self._partition).earliest() > self._since:\n"
        "            for each in requests:\n"
        "                each.tell(self._partition, 1, is_repeat=True)\n"
        "            return\n",
        test=_LOOKED_FOR + "test_where_what_is_named_was_cleared_it_is_published_then",
    ),
    planted(
        "link an event again without another look",
        "cassq.topics.log_end",
        "        self._find_repeats(left, head)\n",
        "        if not hasattr(self, 'found'):\n            self.found = self._find_repeats(left, head)\n",
        test=_TESTS + "TestTwoReapers::test_a_link_that_lands_late_and_before_another_reapers_is_found",
    ),
    planted(
        "delete a pipe before its event is linked",
        "cassq.reaping.reaper",
        "            self._journaling.write(retired)\n"
        "            for entry, _ in retired:\n"
        "                self._delete(entry, report)\n",
        "            for entry, _ in retired:\n"
        "                self._delete(entry, report)\n"
        "            self._journaling.write(retired)\n",
        test=_TESTS + "TestTheJournalOutOfReach::test_nothing_is_deleted_until_the_event_is_known",
    ),
)
