"""Bugs planted in topics: in links, numbers, segments, retention, readers, and the progress of groups."""

from planting import Edit, Mutant, planted

_TESTS = "tests/unit/topics/"
_LANES = _TESTS + "test_lanes_of_publishers.py::TestLane::"
_OFFERS = _TESTS + "test_offers.py::TestAnOffer::"
_END = "cassq.topics.log_end"
_SHARED = "cassq.topics.shared_end"
_RETENTION = "cassq.topics.retention"
_READER = "cassq.topics.log_reader"
_HELD = "cassq.topics.held_partition"
_STATEMENTS = "cassq.storage.cassandra.topic_statements"
_ADAPTER = "cassq.storage.cassandra.topics"


def _in_histories(name: str, module: str, old: str, new: str) -> Mutant:
    """Return a bug of one edit that histories of topics find."""
    return planted(name, module, old, new, about="topics")


TOPIC_MUTANTS: tuple[Mutant, ...] = (
    # Links
    _in_histories(
        "link on the op that stands by now",
        _ADAPTER,
        "(*_head_values(wanted), *place, seen.op))]",
        "(*_head_values(wanted), *place, (self.load_head(place) or seen).op))]",
    ),
    _in_histories(
        "believe that an unknown link was applied",
        _END,
        "            is_linked = self._settle_until(link, until, meanwhile)\n",
        "            is_linked = True\n",
    ),
    _in_histories(
        "publish anew what may be linked still",
        _END,
        "            is_linked = self._settle_until(link, until, meanwhile)\n",
        "            is_linked = False\n",
    ),
    _in_histories(
        "take whatever is at an offset for one's own",
        _END,
        "        return there[0].link_id == link.wanted.op\n",
        "        return True\n",
    ),
    _in_histories(
        "tell an unknown publish as not published",
        "cassq.topics.partition_lane",
        "                self._fail(left, OutcomeUnknownError(told))\n",
        "                self._fail(left, StorageUnavailableError(told))\n",
    ),
    Mutant(
        "link a large batch before it is written",
        (
            Edit(
                _ADAPTER,
                "            self._session.execute_each(\n                (cql.APPEND_LARGE",
                "            later = list(\n                (cql.APPEND_LARGE",
            ),
            Edit(
                _ADAPTER,
                '        return bool(self._session.execute_conditional(work)[0]["[applied]"])\n',
                '        is_applied = bool(self._session.execute_conditional(work)[0]["[applied]"])\n'
                "        if is_large and is_applied:\n"
                "            self._session.execute_each(later)\n"
                "        return is_applied\n",
            ),
        ),
        about="topics",
    ),
    planted(
        "take a segment that is being deleted for one without one's own link",
        _END,
        "            return None  # deleted since the head was read: whose it was went with it\n",
        "            return False\n",
        test=_TESTS
        + "test_ends_of_logs.py::TestAnUnknownLink::"
        + "test_whose_segment_goes_while_it_is_settled_is_never_published_twice",
    ),
    # Numbers
    _in_histories(
        "publish a number twice that was the last one",
        _END,
        "                if row and each.number <= row.number:\n",
        "                if row and each.number < row.number:\n",
    ),
    _in_histories(
        "keep the rows of writers of a head that others changed",
        _END,
        "        self._place = self._head = self._writers = None\n",
        "        self._place = self._head = None\n",
    ),
    _in_histories(
        "forget the writers of the segment before",
        _END,
        "for each in context.storage.read_writers(place) if",
        "for each in () if",
    ),
    _in_histories(
        "publish parts of one number one after the other",
        "cassq.topics.spreading",
        "            if lot and not self._is_whole and not lot.has_room(size):\n",
        "            if lot and not lot.has_room(size):\n",
    ),
    planted(
        "link what is larger than a batch together with what waits beside it",
        "cassq.topics.partition_lane",
        "chain.from_iterable(parts[: max(1, alone)])",
        "chain.from_iterable(parts)",
        test=_LANES + "test_what_is_larger_than_a_batch_is_linked_alone",
    ),
    planted(
        "tell what was refused for certain as unknown",
        "cassq.topics.partition_lane",
        "unknown if is_unknown else refused",
        "unknown",
        test=_LANES + "test_who_was_refused_until_nobody_waited_hears_that_nothing_is_published",
    ),
    planted(
        "tell of a repeat that failed that nothing of it is published",
        "cassq.topics.many_messages",
        "        published = self._repeated + sum(",
        "        published = sum(",
        test=_TESTS
        + "test_open_topics.py::TestManyWithANumber::"
        + "test_a_repeat_that_fails_does_not_say_that_nothing_is_published",
    ),
    planted(
        "cut no batch out of a large request",
        "cassq.topics.publish_request",
        "    if is_large(part):\n",
        "    if False:\n",
        test=_TESTS
        + "test_open_topics.py::TestManyWithANumber::"
        + "test_are_one_link_of_each_partition_and_are_published_once",
    ),
    # Offers
    _in_histories(
        "link an offer without the row of its source",
        _END,
        "batches, list(rows.values())), until",
        "batches, [each for each in rows.values() if not is_source(each.writer)]), until",
    ),
    _in_histories(
        "link an offer in whatever segment is open",
        _END,
        "            if each.segment not in (None, place):\n                continue\n",
        "",
    ),
    _in_histories(
        "tell of an offer once it is written",
        _SHARED,
        "        watch = OfferWatch(self._clock.now(), self._usual_s)\n        while True:\n",
        "        watch = OfferWatch(self._clock.now(), self._usual_s)\n"
        "        offered.tell(self._partition, self._end.look())\n        return True\n        while True:\n",
    ),
    _in_histories(
        "offer anew without another look at a segment that was closed",
        _SHARED,
        "(place, self._source)\n        if head is None or",
        "(place, self._source)[0], None\n        if head is None or",
    ),
    planted(
        "offer anew what was offered in a segment that is gone",
        _SHARED,
        '            raise OutcomeUnknownError("the segment that it was offered for is gone")\n',
        "            return False\n",
        test=_OFFERS + "test_whose_segment_goes_is_told_that_nobody_knows_and_is_never_offered_anew",
    ),
    planted(
        "tell as not published what is offered still",
        _SHARED,
        "lambda _: meanwhile(True)",
        "meanwhile",
        test=_OFFERS + "test_that_is_refused_again_and_again_is_unknown_and_never_told_as_not_published",
    ),
    # Segments
    _in_histories(
        "open a segment behind one that is open",
        _END,
        "            self._storage.link(place, head, closed(head))\n",
        "            open_next(self._context, place, head)\n",
    ),
    _in_histories(
        "delete a segment that was not retired",
        _RETENTION,
        "                if head is None or head.state is SegmentState.RETIRED:\n                    break\n",
        "                break\n",
    ),
    _in_histories(
        "delete the line of a segment first",
        _ADAPTER,
        "        deletions = cql.DELETE_LARGE, cql.DELETE_LINKS, cql.DELETE_SEGMENT\n",
        "        deletions = cql.DELETE_SEGMENT, cql.DELETE_LARGE, cql.DELETE_LINKS\n",
    ),
    _in_histories(
        "delete the last segment, too",
        _RETENTION,
        "        return self._delete([each.number for each in listed[:-1]])\n",
        "        return self._delete([each.number for each in listed])\n",
    ),
    _in_histories(
        "delete a topic without retiring its last segment",
        _RETENTION,
        "            if place == last:  # no other one came while it was retired\n",
        "            if place:\n",
    ),
    Mutant(
        "end a topic at a segment that somebody else retired",
        (
            Edit(
                _RETENTION,
                "            if place == last:  # no other one came while it was retired\n",
                "            if self._retire_last(place):\n",
            ),
            Edit(
                _RETENTION, "                deleted += self._delete(", "                return self._delete("
            ),
        ),
        test=_TESTS
        + "test_ends_of_logs.py::TestDeletion::"
        + "test_no_publish_is_acknowledged_after_a_deletion_during_which_another_one_cleared",
    ),
    # Readers
    _in_histories(
        "take a segment that is gone for the end of the log",
        _READER,
        "            if self._place == place:  # its line goes last\n"
        "                raise self._segments.gone(self.next)\n",
        "            if self._place == place:\n                return False\n",
    ),
    _in_histories(
        "read past a gap of batches",
        _READER,
        "            if not batch.first <= self.next < batch.next:\n                break\n",
        "            self.next = max(self.next, batch.first)\n",
    ),
    planted(
        "take what is half done for damage",
        _READER,
        "self._is_gone(self._storage.load_head(place))",
        "self._is_gone(self._storage.glance_head(place))",
        test=_TESTS
        + "test_readers_of_logs.py::TestLogReader::"
        + "test_a_batch_that_is_on_its_way_to_all_replicas_is_read_once_the_head_is_settled",
    ),
    _in_histories(
        "go on behind a closed segment before its end",
        _READER,
        "        if self.next < head.next:\n",
        "        if self.next < head.next and head.state is SegmentState.OPEN:\n",
    ),
    # Groups
    _in_histories(
        "hand out before the take-over is applied",
        _HELD,
        "            if is_applied:\n                self._progress, self._read_to",
        "            if seen:\n                self._progress, self._read_to",
    ),
    _in_histories(
        "commit on an older offset",
        _STATEMENTS,
        "IF epoch = ? AND next = ?",
        "IF epoch = ? AND next >= ?",
    ),
    _in_histories(
        "commit in an older epoch",
        _STATEMENTS,
        "IF epoch = ? AND next = ?",
        "IF epoch >= ? AND next >= ?",
    ),
    _in_histories(
        "commit what is in hand still",
        _HELD,
        "                to = min([self._read_to, *(each.offset for each in islice(self._out, 1))])\n",
        "                to = self._read_to\n",
    ),
    _in_histories(
        "reset a group in the epoch of its members",
        "cassq.topics.group",
        '            wanted = Progress(partition, seen.epoch + 1, "", offset)\n',
        '            wanted = Progress(partition, seen.epoch, "", offset)\n',
    ),
    planted(
        "never ask whether a partition is one's own still",
        "cassq.topics.share",
        "            checked = checked[self._turn % len(checked) :][:1] if checked else []\n",
        "            checked = []\n",
        test=_TESTS
        + "test_members_of_groups.py::TestConsumers::"
        + "test_a_reset_that_the_record_was_never_told_of_is_heard_of_all_the_same",
    ),
    planted(
        "go back to a message that comes again already",
        _HELD,
        "            if offset >= self._read_to:\n",
        "            if not offset:\n",
        test=_TESTS
        + "test_members_of_groups.py::TestAgain::"
        + "test_a_message_that_went_back_already_moves_nothing_forward",
    ),
    planted(
        "move on before what was read can be handed out",
        _HELD,
        "            ready.extend(handed)\n            self._read_to = log.next\n",
        "            self._read_to = log.next\n            ready.extend(handed)\n",
        test=_TESTS
        + "test_torn_readers.py::"
        + "test_whoever_is_torn_out_of_a_poll_is_handed_all_and_progress_passes_nothing",
    ),
    planted(
        "read on where a look that a signal ended left off",
        "cassq.topics.topic_reader",
        "            if log.next != place.next[partition]:",
        "            if log.next < place.next[partition]:",
        test=_TESTS + "test_torn_readers.py::test_whoever_is_torn_out_of_a_read_skips_nothing",
    ),
    planted(
        "let a partition go while its messages are in hand",
        "cassq.topics.consumer",
        "                elif held.is_leaving and held.is_idle:\n",
        "                elif held.is_leaving:\n",
        test=_TESTS
        + "test_members_of_groups.py::TestConsumers::"
        + "test_a_partition_is_let_go_once_what_was_handed_out_of_it_is_done",
    ),
)
