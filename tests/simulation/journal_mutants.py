"""Bugs planted in the journal: in where the event of a pipe is looked for, and in what waits for it."""

from planting import Mutant, planted

_JOURNAL = "cassq.topics.journal"
_JOURNALING = "cassq.reaping.journaling"
_TESTS = "tests/unit/reaping/test_journaling.py::"
_PARTS = _TESTS + "TestAPipeOfWhichHeadersAreKept::"
_DELETIONS = "tests/unit/face/test_deletion_event.py::"
_LOOKED_FOR = _TESTS + "TestWhereTheEventIsLookedFor::"

JOURNAL_MUTANTS: tuple[Mutant, ...] = (
    planted(
        "publish the event of a pipe before its head names a place",
        _JOURNALING,
        "        kind = self._context.settings.journal\n",
        "        kind = self._context.settings.journal\n"
        '        if kind != "off":\n'
        "            place = self._open().end(str(fenced.pipe), kind)\n"
        "            self._open().write({str(fenced.pipe): place}, self._events_of(fenced.entry, kind))\n",
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
        "        if self._since < head.next:\n",
        "        if Segments(self._context, self._partition).earliest() > self._since:\n"
        "            for each in requests:\n"
        "                each.tell(self._partition, 1, is_repeat=True)\n"
        "            return\n"
        "        if self._since < head.next:\n",
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
        "cut a pipe by what its queue keeps now",
        _JOURNALING,
        "self._events_of(entry, place.kind)",
        "self._events_of(entry, self._context.settings.journal)",
        test=_PARTS + "test_a_reaper_that_died_at_any_call_is_gone_on_for[outline]",
    ),
    planted(
        "take one part of a pipe for all of them",
        _JOURNAL,
        'return headers.get(KEY_HEADER, ""), headers.get(FIRST_HEADER, "1")',
        'return headers.get(KEY_HEADER, ""), "1"',
        test=_PARTS + "test_a_reaper_that_died_at_any_call_is_gone_on_for[headers]",
    ),
    planted(
        "note a deletion as told before it is",
        "cassq.catalog.queue_catalog",
        "            self._on_deleted(deleted)\n",
        "            told = replace(deleted, samples=(), op=new_token())\n"
        "            self._storage.change_queue(deleted, told)\n"
        "            self._on_deleted(deleted)\n",
        test=_DELETIONS
        + "test_who_dies_at_any_call_leaves_a_deletion_that_is_told_once[go_on_by_reaping-False]",
    ),
    planted(
        "look for the event of a deletion from now on",
        "cassq.topics.topic_store",
        "journal.place_at(event.key, record.samples[0].at_ms)",
        'journal.end(event.key, "outline")',
        test=_DELETIONS
        + "test_who_dies_at_any_call_leaves_a_deletion_that_is_told_once[go_on_by_reaping-True]",
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
