"""Bugs planted in relays: in pipes that are named, filled, sealed and left, and in who else may end them."""

from planting import Edit, Mutant, planted

_PART = "cassq.topics.relayed_partition"
_PIPE = "cassq.topics.relayed_pipe"
_ENDS = "tests/unit/topics/test_relays.py::TestWhoElseEndsPipes::"
_TROUBLE = "tests/unit/topics/test_relays.py::TestTrouble::"
_LISTED = "cassq.pipes.pipe_list"


def _in_histories(name: str, module: str, old: str, new: str) -> Mutant:
    """Return a bug of one edit that histories of relays find."""
    return planted(name, module, old, new, about="relays")


RELAY_MUTANTS: tuple[Mutant, ...] = (
    _in_histories(
        "create a relay's pipe before it is named",
        _PART,
        "        self._write(following, filling.pipe)\n        self._pipes.create(self._key, filling.pipe)\n",
        "        self._pipes.create(self._key, filling.pipe)\n        self._write(following, filling.pipe)\n",
    ),
    _in_histories(
        "leave a relay's pipe that is open",
        _PIPE,
        "            answer = self._storage.transact(pipe, Transaction(Seal(newest.last if newest else 0)))\n"
        "            if answer.is_applied:\n",
        "            answer = None\n            if self:\n",
    ),
    _in_histories(
        "go on from the progress, whatever is in the pipe",
        _PART,
        "            following = max(following, self._pipes.offset_of(pipe, last) + 1)\n",
        "            pass\n",
    ),
    planted(
        "seal a relay's pipe before what was handed out",
        _PIPE,
        "Seal(newest.last if newest else 0)))",
        "Seal(newest.last if newest else 0, is_free=True)))",
        test=_ENDS + "test_what_was_handed_out_before_the_seal_is_in_front_of_it",
    ),
    _in_histories(
        "fill the pipe of an earlier epoch",
        _PART,
        "            self._leave()\n            if self._progress.pipe:\n                return False\n",
        "            from cassq.pipes.outside_view import find_newest\n"
        "            newest = find_newest(self._storage, self._progress.pipe)\n"
        "            if newest is None:\n"
        "                self._leave()\n"
        "            else:\n"
        "                count, now = newest.last, self._context.clock.now()\n"
        "                self._filling = Filling(self._progress.pipe, now, count)\n"
        "                offset = self._pipes.offset_of(self._progress.pipe, count)\n"
        "                self._log = LogReader(self._context, self.partition, offset + 1, skips_gone=True)\n",
    ),
    _in_histories(
        "leave a relay's pipe that nobody created yet",
        _PIPE,
        "                self.create(key, pipe)  # who named it died",
        "                return 0  # who named it died",
    ),
    planted(
        "name another pipe in the same epoch",
        _PART,
        "            wanted = replace(wanted, epoch=seen.epoch + 1)\n",
        "            pass\n",
        test=_TROUBLE + "test_a_name_that_lands_late_is_refused",
    ),
    planted(
        "go on after a change whose answer got lost",
        _PART,
        "        if self._is_unsure:\n            self.check()\n",
        "        self._is_unsure = False\n",
        test=_TROUBLE + "test_a_change_that_nobody_can_look_at_is_looked_at_before_all_else",
    ),
    planted(
        "seal the pipe of a relay that is gone",
        _LISTED,
        "        return is_old and not (is_open and self._is_named(entry, now))\n",
        "        return is_old\n",
        test=_ENDS + "test_a_named_pipe_is_not_sealed_and_is_once_it_was_left",
    ),
    _in_histories(
        "retire the pipe that a relay goes on from",
        "cassq.reaping.sources",
        "        if is_named(self._storage, source.entry):\n            return False\n",
        "",
    ),
    planted(
        "relay what waits, though its pipe was left",
        _PART,
        "        self._write(following, None)\n        self._waiting, self._log = [], None\n",
        "        self._write(following, None)\n",
        test=_ENDS + "test_a_pipe_that_others_sealed_under_its_hands_is_gone_on_from",
    ),
    Mutant(
        "begin another batch after one whose answer got lost",
        (
            Edit(_PART, "filling.sent or to_batch(filling.count + 1,", "to_batch(filling.count + 1,"),
            Edit(
                _PART,
                "        self._storage.append(filling.pipe, batch)\n",
                "        filling.count += batch.count\n"
                "        self._storage.append(filling.pipe, batch)\n"
                "        filling.count -= batch.count\n",
            ),
        ),
        about="relays",
    ),
    planted(
        "seal a relay's pipe beside a batch whose answer got lost",
        _PART,
        "        if self._filling and not self._waiting and self._log:\n",
        "        if self._filling and self._log:\n",
        test=_TROUBLE + "test_who_leaves_with_a_batch_whose_answer_got_lost_seals_nothing",
    ),
    planted(
        "create a relay's pipe that was left and deleted",
        "cassq.storage.sqlite.topics",
        "    return bool(named) and not db.execute(",
        "    return bool(named or pipe) and not db.execute(",
        test="tests/contract/test_pipes_contract.py::TestPipesOfRelays::"
        "test_a_pipe_that_was_left_and_deleted_does_not_come_back[file]",
    ),
    planted(
        "take what was heard while a relay began to listen for news to come",
        "cassq.topics.relay",
        "                self._is_heard = True  # first: it may be heard of within the call\n"
        "                if not self._bell.listen(self._name, self._hear):\n"
        "                    self._is_heard = False\n",
        "                self._is_heard = self._bell.listen(self._name, self._hear)\n",
        test="tests/unit/topics/test_relays.py::TestThreads::"
        "test_what_is_published_while_a_relay_begins_to_listen_is_heard_of",
    ),
    planted(
        "reset a subscription beside what its relays have under way",
        "cassq.topics.group",
        "                if target:\n",
        "                if not self:\n",
        test="tests/unit/topics/test_relays.py::TestOperators::"
        "test_what_comes_after_a_reset_from_before_it_is_not_in_the_queue",
    ),
    planted(
        "give a relay's pipe an id before that of the one before",
        _PIPE,
        "fresh.time > before.time else",
        "fresh.time else",
        test="tests/unit/topics/test_relays.py::TestRelaying::"
        "test_a_pipe_has_a_later_id_than_the_one_before_whatever_the_clock_says",
    ),
)
