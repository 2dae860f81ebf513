"""Bugs that take one rule of the protocol away, for rules that no other planted bug takes away.

Owns the patches, like `mutants`. Some rules only matter in a coincidence that is too rare for histories drawn
at random: those name the test that brings it about.
"""

from planting import Edit, Mutant, planted

_STATEMENTS = "cassq.storage.cassandra.statements"
_STORAGE = "cassq.storage.cassandra.storage"
_TRANSACTIONS = "cassq.storage.cassandra.transactions"
_CONTRACT = "tests/simulation/test_cluster.py::"
_WINDOWS = "tests/unit/pipes/test_window_steps.py::"
_FAULT = "tests/fault/test_planted_faults.py::"
_STAGED = "tests/integration/test_staging.py::"
_LABELS = "tests/unit/bulk/test_staging_of_labels.py::"
_STAGED_LIST = "tests/unit/bulk/test_staged_list.py::"
_PARTIAL = "tests/simulation/test_partial_rows.py::"
_STREAM = "cassq.spark.streaming"
_READER = "tests/integration/test_run_reader.py::"
_LIST = "tests/unit/pipes/test_pipe_list.py::"
_SUPPLY = "tests/unit/pushing/test_pipe_rotation.py::"
_HELD = "tests/unit/pipes/test_held_run.py::"
_PAUSED = "tests/fault/test_paused_machines.py::"
_BACKOFF = "tests/unit/popping/test_pipe_backoff.py::"
_OWNED = "tests/unit/pipes/test_owned_pipe.py::"
_ROWS = "tests/unit/pipes/test_run_rows.py::"
_REAPER = "tests/unit/reaping/test_reaper.py::"
_BUFFER = "tests/unit/pushing/test_push_buffer.py::"
_LANE = "tests/unit/pushing/test_lane.py::"
_HAND = "tests/unit/popping/test_delivery_buffer.py::"
_FETCH = "tests/unit/popping/test_fetch_thread.py::"
_POP_FUTURE = "tests/unit/popping/test_pop_future.py::"
_TOLD = "tests/unit/popping/test_told_commits.py::"
_PRIORITIES = "tests/integration/test_priorities.py::"
_TYPES = "tests/integration/test_types.py::"
_EXPIRY = "tests/unit/pipes/test_expiry.py::"
_PURGING = "tests/unit/observing/test_purging.py::"
_FORKS = "tests/integration/test_forks.py::"
_FIGURES = "tests/unit/metrics/test_store_figures.py::"
_EVENTS = "tests/unit/runtime/test_event_buffer.py::"
_SLOTS = "tests/unit/popping/test_slots.py::"
_CACHED = "tests/unit/catalog/test_cached_record.py::"
_RECORD = "tests/unit/catalog/test_contended_record.py::"

_PUSH = (
    planted(
        "take a refusal by a pipe that is gone for a seal",
        _TRANSACTIONS,
        "    return Answer(is_applied=False)\n\n\n",
        "    return Answer(is_applied=True)\n\n\n",
        test=_CONTRACT + "TestSeal::test_a_refusal_by_a_pipe_that_is_gone_tells_neither",
    ),
    planted(
        "let a later mark with the same beginning stand",
        "cassq.storage.cassandra.rows",
        "mark.attempt or UNSET_VALUE, mark.last\n",
        "mark.attempt or UNSET_VALUE, 1\n",
        test=_CONTRACT + "TestMarks::test_of_two_with_the_same_beginning_the_longer_stands",
    ),
    planted(
        "send other messages under a number that was sent",
        "cassq.pushing.lane",
        "        # From here on the pipe takes no further message, whatever the outcome.\n",
        "        if outcome is Outcome.UNKNOWN:\n            return\n",
    ),
    Mutant(
        "seal a pipe whose end is decided",
        (
            Edit(_STATEMENTS, '"last = ? AND cursor <= ?"', '"cursor <= ?"'),
            Edit(
                _TRANSACTIONS,
                "Phase.SEALED.value, pipe, UNDECIDED, NO_LIMIT if is_free else last)",
                "Phase.SEALED.value, pipe, NO_LIMIT if is_free else last)",
            ),
        ),
        test=_CONTRACT + "TestSeal::test_a_refusal_after_the_end_is_decided_tells_cursor_and_end",
    ),
    planted(
        "read past a gap",
        "cassq.pipes.batch_reader",
        "        if batch.first > reached + 1:\n            break\n",
        "",
        test=_FAULT + "test_a_read_that_missed_a_batch_hands_out_nothing_behind_it",
    ),
    planted(
        "count since when a pipe is known from before the list was asked for",
        "cassq.pipes.pipe_list",
        "        now = self._clock.now()  # a pipe is first seen when",
        "        # a pipe is first seen when",
        test=_FAULT + "test_a_reaper_frozen_before_it_read_the_list_takes_no_fresh_pipe_for_an_old_one",
    ),
    Mutant(
        "drain on a read from before the seal",
        (
            Edit(
                "cassq.pipes.upkeep",
                "        return True\n    op = new_token()\n    return fenced.settle(Transaction(ForceSeal(",
                "        return True\n"
                "    fenced.was_drained = fenced.reader.is_drained(fenced.head.read_from, fenced.head.cursor)\n"
                "    op = new_token()\n    return fenced.settle(Transaction(ForceSeal(",
            ),
            Edit(
                "cassq.pipes.upkeep",
                "not fenced.reader.is_drained(head.read_from, head.cursor):",
                'not getattr(fenced, "was_drained", True):',
            ),
        ),
        test=_FAULT + "test_what_lands_just_before_the_forced_seal_is_not_cut_off",
    ),
    Mutant(
        "drain over the end that the pusher set",
        (
            Edit(
                _STATEMENTS,
                '_head_change("op last", "op = ? AND last = ?")',
                '_head_change("op last", "op = ?")',
            ),
            Edit(_TRANSACTIONS, "(op, last, pipe, seen_op, UNDECIDED)", "(op, last, pipe, seen_op)"),
        ),
        test=_CONTRACT + "TestForceSealDrainRetire::test_drain_is_refused_once_the_pusher_decided_the_end",
    ),
    planted(
        "count the age of a pipe from the reply to its opening on",
        "cassq.pushing.pipe_rotation",
        "            self._unsealed.append(opened)\n            raise\n        return opened\n",
        "            self._unsealed.append(opened)\n            raise\n"
        "        opened.opened_at = self._clock.latest()\n        return opened\n",
        test=_PAUSED + "test_a_pipe_whose_opening_was_paused_is_as_old_as_others_see_it",
    ),
    planted(
        "take a push for refused that may have landed before the user lost the permission",
        "cassq.pushing.lane",
        "                self._reason = error\n                return outcome\n",
        "                self._reason = error\n                return Outcome.REFUSED\n",
        test=_FAULT + "test_a_push_that_may_have_landed_is_not_told_as_refused",
    ),
    planted(
        "close pipes of a later queue by the settings of an earlier one",
        "cassq.reaping.reaper",
        "            self._record.read()\n            if not upkeep.seal(owned):\n",
        "            if not upkeep.seal(owned):\n",
        test=_FAULT + "test_a_reaper_of_an_earlier_queue_closes_no_pipe_of_a_later_one",
    ),
    planted(
        "take a pipe for handed out before its cursor has reached the end",
        "cassq.model.progress",
        "self.window is None and self.head.is_decided and self.head.cursor >= self.head.last",
        "self.window is None and self.head.is_decided",
    ),
)

_LEASE = (
    planted(
        "send what was planned again, on the op that stands by now",
        "cassq.pipes.fenced_pipe",
        "            return self.look() and self.head.op == op\n",
        "            if self.look() and self.head.op != op and isinstance(transaction.head, Advance):\n"
        "                head = replace(transaction.head, seen_op=self.storage.load_pipe(self.pipe).head.op)\n"
        "                return self.storage.transact(self.pipe, replace(transaction, head=head)).is_applied\n"
        "            return self.head.op == op\n",
        test=_FAULT + "test_a_take_of_unknown_outcome_is_not_made_over_that_of_another_owner",
    ),
    planted(
        "begin a lease anew that somebody may have taken",
        "cassq.bulk.reader_leases",
        "            if row.lease_id == run.lease_id and row.state is RunState.LEASED:\n",
        "            if row.state is RunState.LEASED:\n",
        test=_READER + "test_what_others_took_is_said_to_be_lost[memory]",
    ),
    Mutant(
        "return a run under the lease id of its former holder",
        (
            Edit(
                "cassq.pipes.run_rows",
                "            state=RunState.RETURNED,\n            lease_id=new_token(),\n",
                "            state=RunState.RETURNED,\n            lease_id=self.lease_id,\n",
            ),
            Edit(
                "cassq.model.take_plan",
                "        state=RunState.RETURNED,\n        lease_id=new_token(),\n",
                "        state=RunState.RETURNED,\n        lease_id=run.lease_id,\n",
            ),
        ),
        test=_FAULT + "test_what_comes_back_comes_back_under_a_lease_of_nobody",
    ),
    planted(
        "tell the owner only what came back of a run that was split",
        "cassq.pipes.held_run",
        "            self._on_row_changed(*rows)\n",
        "            self._on_row_changed(*[row for row in rows if row.state is RunState.RETURNED])\n",
        test=_FAULT + "test_what_stays_leased_beside_a_rolled_back_message_is_not_lost_with_its_holder",
    ),
    planted(
        "believe that a lease runs for as long as the row that ends last",
        "cassq.pipes.held_run",
        "left_ms = min(",
        "left_ms = max(",
        test=_HELD + "TestALeaseThatAWitnessDoubts::test_runs_on_for_as_long_as_the_row_that_ends_first",
    ),
    planted(
        "extend what is left of a run of which others took a part",
        "cassq.pipes.held_run",
        "            if not self._rows.is_leased(rows):\n                rows = []\n",
        "            rows = [row for row in rows if row.lease_id == self._rows.lease_id]\n",
        test=_HELD
        + "TestALeaseThatAWitnessDoubts::test_is_not_extended_for_the_rest_where_others_took_a_part",
    ),
    planted(
        "take a run for extended once the first of its rows is",
        "cassq.pipes.held_run",
        "        return all(",
        "        return any(",
        test=_HELD + "TestALeaseThatAWitnessDoubts::test_is_extended_by_transactions_that_cassandra_takes",
    ),
    planted(
        "purge without moving the fence",
        "cassq.pipes.fenced_pipe",
        "        op = new_token()\n        written = replace(\n",
        "        op = self.head.op if marks else new_token()\n        written = replace(\n",
        about="purges",
    ),
)

_TOTALS = (
    planted(
        "read the heads before the record",
        "cassq.reaping.totals",
        "            record = self._read_record()\n            if record is None:\n                return {}\n"
        "            # The record first, then each head: see the race in `cassq.model.queue_record`.\n"
        "            ready = {fenced.pipe: self._look(fenced) for fenced in over}\n",
        "            ready = {fenced.pipe: self._look(fenced) for fenced in over}\n"
        "            record = self._read_record()\n            if record is None:\n                return {}\n",
        about="totals",
    ),
    Mutant(
        "change the record whatever it is",
        (
            Edit(
                _STATEMENTS,
                "WHERE queue = ? AND shard = ? IF op = ?",
                "WHERE queue = ? AND shard = ? IF state = ?",
            ),
            Edit(_STORAGE, "QUEUE, (*values, seen.op))", "QUEUE, (*values, seen.state.value))"),
        ),
        "totals",
    ),
    planted(
        "retire before the counts are in",
        "cassq.reaping.totals",
        "            if new and not self._write_totals(record, new):\n                continue\n",
        "            if new and not self._write_totals(record, new):\n                pass\n",
        about="totals",
    ),
)

_WINDOW = (
    Mutant(
        "go on with a window in a pipe that was sealed",
        (
            Edit(
                "cassq.pipes.window_steps",
                "        and fenced.head.phase is Phase.OPEN\n        and not fenced.head.is_decided\n",
                "",
            ),
            Edit(
                "cassq.pipes.owned_pipe",
                "or self.head.is_decided or self.head.phase is not Phase.OPEN or",
                "or",
            ),
        ),
        test=_WINDOWS + "test_a_forced_seal_ends_the_window_at_the_next_take",
    ),
    planted(
        "count what was cancelled before a window as popped, once others end it",
        "cassq.pipes.window_steps",
        "    skipped = head.skipped + fenced.progress.count_cancelled(head.cursor + 1, last)\n",
        "    skipped = head.skipped\n",
        test=_WINDOWS + "test_what_was_cancelled_before_a_window_is_no_popped_message_of_it",
    ),
    planted(
        "begin a window though the end is decided",
        _TRANSACTIONS,
        "(*values, pipe, seen_op, head.cursor)",
        "(*values, pipe, seen_op, 0 if head.is_window_out else head.cursor)",
        test=_CONTRACT + "TestWindow::test_it_is_refused_once_the_end_is_decided",
    ),
    planted(
        "hand out of a window that is not known to have begun",
        "cassq.pipes.window_steps",
        "        if is_open:\n            fenced.progress.window = run\n",
        "        is_open = True\n        if is_open:\n            fenced.progress.window = run\n",
        about="windows",
    ),
    Mutant(
        "hand out behind a window's last number",
        (
            Edit(
                "cassq.pipes.window_steps",
                "    room = window.run.last - head.cursor\n    if room",
                "    room = 10_000\n    if room",
            ),
            Edit(
                "cassq.pipes.window_steps",
                "    if moved.cursor > window.run.last:\n        return None",
                "    if False:\n        return None",
            ),
        ),
        test=_WINDOWS + "test_nothing_is_handed_out_behind_the_last_number",
    ),
    planted(
        "look at the clock before the batches are read",
        "cassq.pipes.window_steps",
        "    batches = fenced.reader.read(head.read_from, head.cursor, wanted) if wanted > 0 else ()\n"
        "    if fenced.clock.latest() >= window.ends_at:\n        return None\n",
        "    if fenced.clock.latest() >= window.ends_at:\n        return None\n"
        "    batches = fenced.reader.read(head.read_from, head.cursor, wanted) if wanted > 0 else ()\n",
        test=_WINDOWS + "test_nothing_is_handed_out_whose_read_outlasted_the_window",
    ),
    planted(
        "end a window with a shorter lease than it had",
        "cassq.pipes.window_steps",
        "    return replace(run, last=max(last, run.first - 1), window_ms=0)\n",
        "    return replace(\n"
        "        run, last=max(last, run.first - 1), window_ms=0, lease_ms=run.lease_ms - run.window_ms\n    )\n",
        about="windows",
    ),
    planted(
        "hand out of a window whose cut was sent",
        "cassq.pipes.window_steps",
        "    fenced.window = None\n    return window, fenced.head\n",
        "    return window, fenced.head\n",
        about="windows",
    ),
    Mutant(
        "cut behind the newest batch of before the window was over",
        (
            Edit(
                "cassq.pipes.window_steps",
                "    window = fenced.progress.window\n    return window is not None and window.is_window_over(",
                "    window = fenced.progress.window\n"
                "    if window is not None and fenced.seen_newest is None:\n"
                "        fenced.seen_newest = (find_newest(fenced.storage, fenced.pipe, window.last),)\n"
                "    return window is not None and window.is_window_over(",
            ),
            Edit(
                "cassq.pipes.window_steps",
                "    newest = find_newest(fenced.storage, fenced.pipe, window.last)\n",
                "    newest = fenced.seen_newest[0]\n",
            ),
            Edit(
                "cassq.pipes.fenced_pipe",
                "        window, self.window = self.window, None\n        before",
                "        if not state.window:\n            self.seen_newest = None\n"
                "        window, self.window = self.window, None\n        before",
            ),
            Edit(
                "cassq.pipes.fenced_pipe",
                "class FencedPipe:\n",
                "class FencedPipe:\n    seen_newest = None\n",
            ),
        ),
        test=_WINDOWS + "test_another_owner_sees_what_was_pushed_until_the_window_was_over",
    ),
    planted(
        "purge beside a window",
        "cassq.pipes.upkeep",
        "    fenced.heed()\n    if fenced.progress.window:\n        return None\n",
        "    fenced.heed()\n",
        test=_WINDOWS + "test_another_owner_leaves_a_window_alone_until_it_is_over",
    ),
    planted(
        "return beside a window",
        "cassq.pipes.upkeep",
        "    if fenced.progress.window:\n        return 0\n",
        "",
        test=_WINDOWS + "test_no_lease_is_ended_beside_a_window",
    ),
    planted(
        "drain beside a window",
        "cassq.pipes.upkeep",
        "    head = fenced.head\n    if fenced.progress.window:\n        return True\n",
        "    head = fenced.head\n",
        test=_WINDOWS + "test_no_pipe_is_drained_beside_a_window",
    ),
    planted(
        "wait for a window without sealing by force",
        "cassq.pushing.pipe_rotation",
        "                if upkeep.seal(fenced):\n                    window_steps.take_over(fenced)\n",
        "                window_steps.take_over(fenced)\n",
        test=_WINDOWS + "TestAPusherThatMustSettle::test_seals_by_force_so_that_the_holder_cuts_its_window",
    ),
    planted(
        "leave the window of a popper that died to others",
        "cassq.pushing.pipe_rotation",
        "                if upkeep.seal(fenced):\n                    window_steps.take_over(fenced)\n",
        "                upkeep.seal(fenced)\n",
        test=_WINDOWS
        + "TestAPusherThatMustSettle::test_cuts_the_window_of_a_popper_that_died_behind_what_landed",
    ),
    planted(
        "keep what a lost window's holder never handed out",
        "cassq.pipes.held_run",
        "                if window.reached < last:\n",
        "                if False:\n",
        test=_WINDOWS
        + "TestAConsumerOfAWindow::test_what_it_never_got_goes_back_where_others_ended_the_window",
    ),
)

_REPLICAS = (
    planted(
        "read an outline that names no bodies",
        _STATEMENTS,
        '"{_PLACE}, writetime(bodies), writetime(headers), {_STEERING}"',
        '"{_PLACE}, writetime(pushed_at), writetime(pushed_at), {_STEERING}"',
        test=_PARTIAL + "test_what_a_batch_decides_by_being_there_is_whole_on_a_quorum[find_by_outline]",
    ),
    planted(
        "take a row without bodies for a batch",
        "cassq.storage.cassandra.rows",
        "    return row[3] is not None\n",
        "    return True\n",
        test=_PARTIAL + "test_a_window_is_cut_behind_the_newest_batch_that_is_there",
    ),
    planted(  # in the schema that the simulated cluster loads
        "answer reads before the replicas have what they show",
        "cql",
        'SCHEMA.read_text(encoding="utf-8"))',
        'SCHEMA.read_text(encoding="utf-8").replace("\'BLOCKING\'", "\'NONE\'"))',
        about="parts",
    ),
)

_LETTERS = (
    planted(
        "remove every letter under a queue's name",
        _STATEMENTS,
        '"WHERE queue = ? AND shard = ? AND pipe = ? AND seq >= ? AND seq <= ?"',
        '"WHERE queue = ? AND shard = ?"',
        test=_CONTRACT + "TestDeadLetters::test_the_letters_of_pipes_go_at_once_and_those_of_others_stay",
    ),
    planted(
        "remove what lies between the letters that were named",
        "cassq.storage.cassandra.letters",
        "            if part.size >= _STRETCH_MIN:\n",
        "            part = (min(stretches)[0], max(stretches)[1])\n            if part[1] > _STRETCH_MIN:\n",
        test=_CONTRACT
        + "TestDeadLetters::test_a_stretch_that_was_removed_never_comes_back_while_its_pipe_lives",
    ),
    planted(
        "leave letters out where a read was given up",
        "cassq.storage.cassandra.in_parts",
        "            parts += [(middle, high), (low, middle)]\n",
        "            parts.append((middle, high))\n",
        test=_CONTRACT + "TestDeadLettersBehindTombstones::test_all_that_are_left_are_read_and_each_once[0]",
    ),
    planted(
        "clear the letters of a queue that was created meanwhile",
        "cassq.catalog.queue_catalog",
        "            if not self._is_still_deleted(deleted):\n                break\n",
        "",
        test="tests/unit/face/test_store_deletion.py::test_letters_of_a_later_queue_of_the_name_stay",
    ),
)

_STAGING = (
    planted(
        "publish every staged pipe into the ready list",
        "cassq.bulk.staged_list",
        "            meant.setdefault(first_shelf(entry.due_class, entry.slot), []).append(entry)\n",
        "            meant.setdefault(Shelf.READY, []).append(entry)\n",
        test="tests/integration/test_staged_labels.py::"
        "test_a_batch_is_published_whole_into_every_list[memory]",
    ),
    planted(
        "tell by the ready list alone whether pipes were published",
        "cassq.bulk.staged_list",
        "        for shelf in shelves_of(self._context.settings):\n",
        "        for shelf in (Shelf.READY,):\n",
        test=_STAGED_LIST + "test_what_was_moved_since_it_was_published_is_known_to_be_published",
    ),
    planted(
        "let an older cassq read which pipes of keys to publish",
        "cassq.bulk.manifest",
        "        staged.add_checked(_OTHER_LISTS, NO_HEADERS)\n",
        "        pass\n",
        test=_STAGED_LIST + "test_no_older_cassq_can_read_a_manifest_that_names_pipes_for_other_lists",
    ),
    planted(
        "stage messages of several times-to-live in one batch",
        "cassq.bulk.staged_pipes",
        "            or filling.ttl_ms != label.ttl_ms\n",
        "",
        test=_LABELS + "test_a_batch_has_messages_of_one_time_to_live",
    ),
    planted(
        "stage in a pile what is due before the time of its id",
        "cassq.bulk.staged_pipes",
        "        if filling and (label.due_ms < filling.due_from_ms or ",
        "        if filling and (",
        test=_LABELS + "test_what_is_due_before_a_pile_says_has_a_pile_of_its_own",
    ),
    planted(
        "take what was moved for occurrences of a schedule",
        "cassq.bulk.occurrences",
        "    return entry.moved_from is None and entry",
        "    return entry",
        test="tests/unit/reaping/test_schedule_keeper.py::"
        "test_what_was_moved_is_of_no_schedule_whatever_the_name_of_who_pushed_it",
    ),
    planted(
        "take a decision for refused that was sent and held up",
        "cassq.bulk.staging",
        "            if pipes and writer.startswith(ONCE) and self._are_published(writer, batch, pipes):\n"
        "                return record, None  # and",
        "            if False:\n                return record, None  # and",
        test=_STAGED + "test_a_decision_that_was_sent_is_never_told_as_refused_once_it_took_too_long[memory]",
    ),
    planted(
        "refuse a batch while an earlier decision may land",
        "cassq.bulk.staging",
        "                record = self._finish(self._record.change(lambda seen: seen), writer)\n"
        "            except",
        "                record = self._finish(self._record.read(), writer)\n            except",
        test=_STAGED + "test_a_batch_is_told_as_refused_only_once_no_earlier_decision_can_land[memory]",
    ),
    planted(
        "take a batch for refused that is decided, and cannot be published yet",
        "cassq.bulk.staging",
        '        except UnavailableError as error:\n            told = f"writer',
        '        except ConnectionError as error:\n            told = f"writer',
        test=_STAGED
        + "test_a_batch_that_is_decided_is_not_told_as_refused_where_it_cannot_be_published[memory-publish_pipes]",
    ),
    planted(
        "take a change of a record for refused that was sent",
        "cassq.catalog.cached_record",
        "            if not is_in_doubt:\n",
        "            if error:\n",
        test="tests/unit/catalog/test_cached_record.py::"
        "test_a_change_that_was_sent_is_not_told_as_refused_where_nobody_answers_after_that",
    ),
    planted(
        "decide a batch once more",
        "cassq.bulk.writers",
        "    return written is not None and written.batch >= batch\n",
        "    return written is not None and written.batch > batch\n",
        test=_STAGED + "test_a_batch_that_is_repeated_is_published_once[memory]",
    ),
    planted(
        "decide a batch over one that is not published yet",
        "cassq.bulk.staging",
        "                raise _UnfinishedError  # to decide",
        "                pass  # to decide",
        about="bulk writes",
    ),
    planted(
        "list younger pipes of a task beside the older ones",
        "cassq.bulk.staged_list",
        "one_after_the_other(found) if is_in_turn else [found]",
        "[found]",
        test=_STAGED_LIST
        + "test_no_younger_pipe_of_a_task_is_listed_with_an_older_one_where_that_is_their_turn",
    ),
    planted(
        "tell of staged pipes whatever became of their queue",
        "cassq.bulk.staged_pipes",
        "        self._insist(self._record.read)\n",
        "",
        test="tests/unit/bulk/test_staged_pipes.py::test_what_is_staged_while_the_queue_is_created_anew_is_refused",
    ),
    planted(
        "publish what was staged too long ago",
        "cassq.bulk.staged_list",
        "            if age_s > PUBLISH_WITHIN_S:\n",
        "            if False:\n",
        test=_STAGED + "test_what_was_staged_too_long_ago_is_not_published[memory]",
    ),
    Mutant(
        "say that nothing is left before the pipes are published",
        (
            Edit(
                "cassq.bulk.staging",
                "        named = read_manifest(self._storage, written.manifest)\n        if named:\n",
                "        record = self._record.change(lambda seen: writers.finish(seen, writer, written))\n"
                "        named = read_manifest(self._storage, written.manifest)\n        if named:\n",
            ),
            Edit(
                "cassq.bulk.staging",
                "(named)\n        record = self._record.change(lambda seen: writers.finish(seen, writer, written))\n",
                "(named)\n",
            ),
        ),
        test=_STAGED
        + "test_a_driver_that_dies_while_it_publishes_has_its_batch_published_by_the_reaper[memory]",
    ),
    planted(
        "delete attempts before it is published which one counts",
        "cassq.bulk.staging",
        "        record = self._finish(self._record.read(), writer)\n        decided_by",
        "        self._list.remove_undecided(\n"
        "            self._record.read(),\n"
        '            lambda each: each.pusher.startswith(f"{writer}/{batch}/") and each.pipe not in pipes,\n'
        "        )\n"
        "        record = self._finish(self._record.read(), writer)\n        decided_by",
        test=_STAGED + "TestWhoeverComesBy::test_a_driver_that_repeats_the_batch_publishes[memory]",
    ),
    planted(
        "discard without moving the record's op",
        "cassq.bulk.staging",
        "        record = self._finish(self._record.change(lambda seen: seen), writer)\n"
        "        if writers.is_decided(",
        "        record = self._finish(self._record.read(), writer)\n        if writers.is_decided(",
        about="bulk writes",
    ),
    planted(
        "delete what is old without moving the record's op",
        "cassq.bulk.staging",
        "            record = self._record.change(lambda seen: seen)  # nobody decides",
        "            record = self._record.read()  # nobody decides",
        test=_STAGED + "TestADecisionInFlight::test_is_refused_once_what_is_old_was_deleted[memory]",
    ),
    planted(
        "forget an old writer whose batch is not published yet",
        "cassq.bulk.writers",
        "        if not written.manifest and _born_ms(writer)",
        "        if _born_ms(writer)",
        test=_STAGED + "test_what_was_decided_stays_for_as_long_as_it_cannot_be_published[memory-of one]",
    ),
    planted(
        "read the staged list from the smallest number on, which is not the oldest id",
        "cassq.bulk.staged_list",
        "    return just_before(min(pipes, key=time_key))\n",
        "    return just_before(min(pipes))\n",
        test=_STAGED + "test_pipes_are_found_though_the_low_bits_of_the_time_began_anew_between_them[memory]",
    ),
    Mutant(  # either of the two looks is enough
        "delete what is old by a list from before",
        (
            Edit(
                "cassq.bulk.staging",
                "self._list.remove_undecided(record, lambda entry: entry.pipe in old)",
                "self._list.remove(entry for entry in listing.entries if entry.pipe in old)",
            ),
            Edit(
                "cassq.bulk.staged_list",
                "        listed = self.published(entry.pipe for entry in found)\n",
                "        listed: set[UUID] = set()\n",
            ),
        ),
        test=_STAGED + "test_the_reaper_deletes_nothing_that_was_published_while_it_looked[memory]",
    ),
)

_READERS = (
    Mutant(
        "adopt what is done before it is committed",
        (
            Edit(
                _STREAM,
                "        self.commit(start)\n        runs: list[LeasedRun] = []\n",
                "        runs: list[LeasedRun] = []\n",
            ),
            Edit(
                _STREAM,
                "            runs = reader.adopt(_runs(start))\n            self._has_adopted = True\n",
                "            runs = reader.adopt([])\n            self._has_adopted = True\n        self.commit(start)\n",
            ),
        ),
        "run readers",
    ),
    Mutant(
        "commit a run whatever lease it has now",
        (
            Edit(
                "cassq.bulk.reader_leases",
                "        held = self.begin_anew(run)\n"
                "        if held:\n            commit_run(held, Ranges(run.parts))\n"
                "        return held is not None\n",
                "        marks = [Mark(part.first, part.last, End.COMMITTED) for part in run.parts]\n"
                "        self._storage.mark(run.pipe, marks)\n"
                "        return True\n",
            ),
            Edit("cassq.bulk.reader_leases", "import PipeEntry, Run", "import End, Mark, PipeEntry, Run"),
        ),
        "run readers",
    ),
    planted(
        "work on a batch whose leases may be lost",
        _STREAM,
        "        lost = self._open().hold(runs)\n",
        "        lost: list[LeasedRun] = []\n",
        about="run readers",
    ),
    planted(
        "commit a batch once it is planned",
        _STREAM,
        "        lost = self._open().hold(runs)\n",
        "        lost = self._open().hold(runs)\n        self._open().commit(runs)\n",
        about="run readers",
    ),
    Mutant(
        "adopt a run under a lease of its own",
        (
            Edit(
                "cassq.bulk.run_reader",
                "                    if run and self._leases.begin_anew(run):\n                        found.append(run)\n",
                "                    anew = run and UUID(int=run.lease_id.int + 1)\n"
                "                    if run and self._leases.begin_anew(run, anew):\n"
                "                        parts = (run.attempt, run.read_from, run.parts)\n"
                "                        found.append(LeasedRun(run.pipe, anew, *parts))\n",
            ),
            Edit(
                "cassq.bulk.reader_leases",
                "def begin_anew(self, run: LeasedRun) -> HeldRun | None:",
                "def begin_anew(self, run: LeasedRun, anew: UUID | None = None) -> HeldRun | None:",
            ),
            Edit(
                "cassq.bulk.reader_leases",
                "replace(row, lease_ms=self._lease_ms)",
                "replace(row, lease_ms=self._lease_ms, lease_id=anew or row.lease_id)",
            ),
            Edit(
                "cassq.bulk.reader_leases",
                "self._held[run.lease_id] = _Held(run, held)\n                return held",
                "self._held[wanted.lease_id] = _Held(replace(run, lease_id=wanted.lease_id), held)\n"
                "                return held",
            ),
        ),
        "run readers",
    ),
)

_LISTS = (
    planted(
        "begin a look at the list with the oldest pipe",
        "cassq.pipes.pipe_list",
        "return just_before(self._floor, margin_s) if self._floor else None",
        "return self._floor",
        about="late pushers",
    ),
    planted(
        "look back at the list for the skew of clocks alone",
        "cassq.pipes.pipe_list",
        " + (1 << passed.bit_length()) / 1000",
        "",
        test=_LIST + "test_a_pipe_that_is_listed_late_is_seen_within_twice_as_long",
    ),
    planted(
        "look back at the list by half of what it takes",
        "cassq.pipes.pipe_list",
        "(1 << passed.bit_length()) / 1000",
        "(1 << passed.bit_length() >> 1) / 1000",
        test=_LIST + "test_a_pipe_that_is_listed_late_is_seen_within_twice_as_long",
    ),
    planted(
        "look back at the list by the life of a pipe each time",
        "cassq.pipes.pipe_list",
        "(1 << passed.bit_length()) / 1000",
        "self._gone_after_s",
        test=_LIST + "test_a_pipe_that_retired_is_read_a_few_times_however_often_anybody_looks",
    ),
)

_ORDER = (
    planted(
        "take a pipe for another popper's for ever because another one held it once",
        "cassq.popping.pipe_backoff",
        '    """Note that nobody else holds a pipe any more."""\n        self._busy_since.pop(pipe, None)\n',
        '    """Note that nobody else holds a pipe any more."""\n',
        test=_BACKOFF + "test_a_pipe_that_others_held_once_is_waited_for_while_it_is_ones_own",
    ),
    planted(
        "hold a younger pipe back only if the older one gave nothing",
        "cassq.popping.rounds",
        "            if is_in_turn and self._memory",
        "            if is_in_turn and not taken and self._memory",
        test=_FAULT + "test_what_lands_in_an_older_pipe_between_two_reads_comes_before_what_follows_it",
    ),
    planted(
        "fill a pipe that was opened too late after a younger one",
        "cassq.pushing.pipe_rotation",
        "                ahead.add_done_callback(self._seal_overtaken)\n",
        "                self._next = ahead\n",
        test=_SUPPLY + "test_a_pipe_that_is_opened_too_late_is_not_filled_after_a_younger_one",
    ),
    planted(
        "leave a pipe open that was opened too late",
        "cassq.pushing.pipe_rotation",
        "                ahead.add_done_callback(self._seal_overtaken)\n",
        "                pass\n",
        test=_SUPPLY + "test_a_pipe_that_is_opened_too_late_is_not_filled_after_a_younger_one",
    ),
    planted(
        "leave a pipe open of which nobody knows whether it was opened",
        "cassq.pushing.pipe_rotation",
        "        except OutcomeUnknownError:\n            self._unsealed.append(opened)\n            raise\n",
        "        except OutcomeUnknownError:\n            raise\n",
        test=_SUPPLY + "test_a_pipe_of_which_nobody_knows_whether_it_was_opened_is_sealed",
    ),
)

_RECORDS = (
    planted(
        "take a pipe that was cleared meanwhile for a damaged one",
        "cassq.popping.keyed_hand",
        "        return state is None or state.head.phase is Phase.RETIRED\n",
        "        return False\n",
        test=_SLOTS + "TestASlot::test_takes_what_was_cleared_since_it_was_loaded_for_no_damage",
    ),
    planted(
        "acknowledge by a record that nobody could read",
        "cassq.catalog.cached_record",
        "        self._refresh()\n        self._refuse_deleted()\n\n    @property\n",
        "        self.may_take()\n\n    @property\n",
        test=_CACHED + "test_who_would_acknowledge_hears_that_nobody_could_look_and_looks_again_at_once",
    ),
    planted(
        "take whatever became of the record for one's own change",
        "cassq.catalog.cached_record",
        "is_applied = self._read().op == wanted.op\n",
        "is_applied = self._read().op != seen.op\n",
        test=_RECORD + "test_a_change_that_another_one_refused_is_made_all_the_same",
    ),
    planted(
        "create a queue over whatever deleted record stands there",
        "cassq.catalog.queue_catalog",
        "            return wanted if self._storage.change_queue(old, wanted) else None\n",
        "            return wanted if self._storage.change_queue(None, wanted) else None\n",
        test="tests/unit/face/test_late_creation.py::"
        "test_a_creation_that_lands_late_does_not_undo_a_later_deletion",
    ),
)

#: Bugs in the code between the rules, each of which once went by unseen.
_BETWEEN = (
    Mutant(
        "deliver what was taken to be buried once more attempts are allowed",
        (
            Edit(
                "cassq.pipes.planning",
                "plans.append(as_burial(plan_again(fenced.progress, run, batches, portion, fenced.holder)))",
                "plans.append(plan_again(fenced.progress, run, batches, portion, fenced.holder))",
            ),
            Edit(
                "cassq.pipes.owned_pipe",
                "runs = [plan.taken for plan in plans if not plan.taken.run.is_burial]",
                "runs = [plan.taken for plan in plans if plan.taken.run.attempt <= self.attempts_max]",
            ),
            Edit(
                "cassq.pipes.owned_pipe",
                "dead = [plan.taken for plan in plans if plan.taken.run.is_burial]",
                "dead = [plan.taken for plan in plans if plan.taken.run.attempt > self.attempts_max]",
            ),
            Edit(
                "cassq.pipes.burial",
                "pushed_at_ms, run.attempts, reason\n",
                "pushed_at_ms, run.attempt - 1, reason\n",
            ),
        ),
        test=_OWNED
        + "test_what_was_taken_to_be_buried_is_delivered_to_nobody_though_more_attempts_are_allowed_since",
    ),
    planted(
        "let what came back from its last attempt wait for a consumer",
        "cassq.pipes.upkeep",
        "    return is_open_end or bool(fenced.expired()) or has_spent(fenced)\n",
        "    return is_open_end or bool(fenced.expired())\n",
        test=_REAPER + "test_what_came_back_from_its_last_attempt_is_buried_though_nobody_pops",
    ),
    planted(
        "go on under a lease whose rollback was interrupted",
        "cassq.pipes.held_run",
        "        except BaseException:  # interrupted: not known either\n            self.ends_at = _ENDED\n",
        "        except BaseException:\n",
        test=_HELD + "test_nothing_more_is_done_under_a_lease_whose_rollback_was_interrupted",
    ),
    planted(
        "forget why a message came back when its run is split",
        "cassq.pipes.run_rows",
        "            reason=how.reason or row.reason,\n",
        "            reason=how.reason if part == (row.first, row.last) else row.reason,\n",
        test=_ROWS + "test_what_goes_back_keeps_why",
    ),
    planted(
        "let what a lease gave up rest as what failed",
        "cassq.model.take_plan",
        "        not_before_ms=0 if run.state is RunState.LEASED else run.not_before_ms,\n",
        "        not_before_ms=run.leased_at_ms + 3 * run.lease_ms,\n",
        test=_REAPER + "test_what_a_lease_gave_up_comes_back_at_once",
    ),
    planted(
        "lease by the settings that stood when the pipe was claimed",
        "cassq.pipes.owned_pipe",
        "        self.heed_settings()\n",
        "",
        test=_OWNED + "test_a_lease_that_was_altered_counts_for_what_is_taken_from_then_on",
    ),
    planted(
        "alter what processes judge each other by",
        "cassq.model.stored_settings",
        "fixed = {name for name in self.fixed() & options.keys() if options[name] != getattr(self, name)}",
        "fixed = set()",
        test="tests/unit/model/test_settings.py::test_what_processes_judge_each_other_by_is_not_altered",
    ),
    planted(
        "leave what comes due to wait for as long as a flow goes on",
        "cassq.pipes.owned_pipe",
        "self.head.phase is not Phase.OPEN or self.has_due:",
        "self.head.phase is not Phase.OPEN:",
        test=_OWNED + "TestBesideAWindow::test_what_comes_due_is_taken_though_the_flow_goes_on",
    ),
    planted(
        "stop before what was cancelled",
        "cassq.pipes.owned_pipe",
        "        if not plans and head.cursor == self.head.cursor:\n",
        "        if not plans:\n",
        test=_OWNED + "test_what_was_cancelled_is_stepped_over_though_nothing_is_handed_out",
    ),
    planted(
        "extend a run whose window is out without ending that",
        "cassq.pipes.held_window",
        "        return self._state is WindowState.OUT\n",
        "        return self._state is not WindowState.OUT\n",
        test=_WINDOWS + "TestAConsumerOfAWindow::test_it_is_known_while_its_window_is_out",
    ),
    planted(
        "lose the commits beside one that came too late",
        "cassq.popping.grouped_commits",
        "if each.run not in ended]",
        "if each.run in ended]",
        test="tests/unit/popping/test_shared_intake.py::"
        "test_what_is_committed_beside_a_message_that_came_too_late_is_written",
    ),
    planted(
        "let a message join a request that has expired",
        "cassq.pushing.push_buffer",
        "            self._singles.clear()\n",
        "",
        test=_BUFFER + "test_nothing_joins_a_request_that_has_expired",
    ),
    planted(
        "keep the room of what has expired",
        "cassq.pushing.push_buffer",
        "            self._bytes -= sum(request.size for request in late)\n",
        "",
        test=_BUFFER + "test_the_room_of_what_leaves_is_free_again",
    ),
    planted(
        "store the rest of a request under the headers of its beginning",
        "cassq.pushing.push_request",
        "            self.headers = self.headers[count:]\n",
        "",
        test="tests/unit/pushing/test_push_request.py::test_what_is_stored_later_keeps_its_own_headers",
    ),
    planted(
        "leave a push that interrupted another one behind when the queue is closed",
        "cassq.pushing.push_buffer",
        "return self._is_closed and not self._requests and not self._aside",
        "return self._is_closed and not self._requests",
        test=_BUFFER + "TestAPushThatInterruptedAnother::test_is_not_left_behind_by_a_close",
    ),
    planted(
        "tell messages that are stored in part as not stored",
        "cassq.pushing.push_result",
        "    elif ids and not isinstance(error, OutcomeUnknownError):\n",
        "    elif not ids and not isinstance(error, OutcomeUnknownError):\n",
        test="tests/unit/pushing/test_what_callers_of_many_hear.py::"
        "test_what_is_stored_in_part_is_never_told_as_not_stored",
    ),
    planted(
        "leave a pipe open that was opened ahead when the queue is closed",
        "cassq.pushing.pipe_rotation",
        "(self._current, self._take_next(), *self._unsealed)",
        "(self._current, *self._unsealed)",
        test=_SUPPLY + "TestOverTime::"
        "test_closing_seals_what_is_open_what_was_opened_ahead_and_what_could_not_be_sealed",
    ),
    planted(
        "look at the same few pipes in each short pass",
        "cassq.reaping.reaper",
        "        self._examined_at[entry.pipe] = self._clock.now()\n",
        "",
        test="tests/unit/reaping/test_reaper.py::TestAShortPass::"
        "test_looks_at_the_oldest_first_and_at_each_of_them_in_turn",
    ),
    planted(
        "say nothing of a loss that a late acknowledgement shows",
        "cassq.pushing.lane",
        "                self._pipes.check_end(opened, state.head.last)\n",
        "",
        test=_LANE + "TestAnAcknowledgementThatComesLate::test_that_shows_a_loss_has_it_told",
    ),
    planted(
        "send a write again until no time is left for another pipe",
        "cassq.pushing.lane",
        "min(started + RESEND_S, (started + deadline) / 2)",
        "min(started + RESEND_S, deadline)",
        test=_LANE
        + "TestAWriteWithoutAnAnswer::test_is_sent_again_as_it_is_for_a_while_and_then_elsewhere[4.0-2.0]",
    ),
    planted(
        "hold an outage that is over against later pushes",
        "cassq.pushing.lane",
        "            self._reason = None\n",
        "",
        test=_LANE + "TestAnOutage::test_that_is_over_counts_against_nobody[append]",
    ),
    planted(
        "wake no fetch thread for a consumer that waits for it",
        "cassq.popping.delivery_buffer",
        "        self.alarm.wake()\n",
        "",
        test=_HAND + "test_whoever_needs_the_fetch_thread_wakes_it[call]",
    ),
    planted(
        "go on taking for consumers that have left",
        "cassq.popping.consumer_line",
        "            del self._waiting[consumer]\n            self.demand -= consumer.count\n",
        "            del self._waiting[consumer]\n",
        test=_HAND + "test_nothing_is_taken_for_a_consumer_that_has_left",
    ),
    planted(
        "keep a wake-up for consumers that have left",
        "cassq.popping.fetch_thread",
        "            if not self._buffer.is_starving():\n",
        "            if False:\n",
        test=_FETCH + "TestHunger::test_a_wake_up_for_consumers_that_have_left_goes_to_another_popper",
    ),
    planted(
        "stay in the line of the hungry after a look that failed",
        "cassq.popping.fetch_thread",
        "            self._rivals.withdraw()\n",
        "",
        test=_FETCH + "TestHunger::test_ends_though_a_look_fails",
    ),
    planted(
        "fill staged pipes on after a write that failed",
        "cassq.bulk.staged_pipes",
        "                    self._is_broken = True\n",
        "",
        test="tests/unit/bulk/test_staged_pipes.py::"
        "test_a_write_that_fails_for_good_ends_the_task_and_nothing_can_be_added[append]",
    ),
    planted(
        "remember every pipe that was ever retired",
        "cassq.reaping.totals",
        "        self._retired &= record.counted\n",
        "",
        test="tests/unit/reaping/test_reaper.py::"
        "test_nothing_is_remembered_of_pipes_that_the_totals_have_forgotten",
    ),
    planted(
        "tell that a message waits by a look from before its row was gone",
        "cassq.observing.inspection",
        "        if progress_seen(seen, self._context.settings.max_attempts).ending_of(at.seq):\n"
        "            return at\n",
        "",
        test="tests/unit/observing/test_status.py::"
        "test_a_message_that_ends_between_two_reads_is_not_told_to_wait",
    ),
    planted(
        "tell a dead letter as ended once its pipe has moved on",
        "cassq.observing.inspection",
        "        if state is None or seq <= state.head.floor:\n",
        "        if state and seq <= state.head.floor:\n            return MessageStatus(MessageState.ENDED)\n"
        "        if state is None:\n",
        test="tests/unit/observing/test_status.py::"
        "test_a_message_that_was_given_up_is_dead_for_as_long_as_its_letter_is_there",
    ),
    planted(
        "show nothing that waits in the rest of a batch",
        "cassq.bulk.snapshot",
        "min(read_from, part.first)",
        "max(read_from, part.first)",
        test="tests/unit/bulk/test_snapshot.py::test_what_waits_from_the_middle_of_a_batch_on_is_shown",
    ),
    planted(
        "put back what the same call has put back",
        "cassq.observing.redriving",
        "        return pipe in self._first and seq >= self._first[pipe]\n",
        "        return False\n",
        test="tests/unit/observing/test_dead_letters.py::test_what_dies_again_meanwhile_stays",
    ),
    planted(
        "cancel what is in consumers' hands",
        "cassq.observing.purging",
        "    if run and not (is_idle(fenced, run) or (is_running_meant and _is_running(fenced, run))):\n",
        "    if run and is_spent(run, fenced.attempts_max):\n",
        about="cancellations",
    ),
    planted(
        "cancel what is to be a dead letter",
        "cassq.pipes.by_hand",
        "    if run.is_burial or is_spent(run, fenced.attempts_max):\n        return False\n",
        "",
        test=_PURGING + "test_what_came_back_from_its_last_attempt_is_to_be_a_dead_letter_and_not_cancelled",
    ),
    planted(
        "cancel under a lease that has ended",
        "cassq.observing.purging",
        "    if progress.window or run in fenced.expired():\n",
        "    if progress.window:\n",
        test=_PURGING + "test_a_lease_that_has_ended_is_taken_from_its_holder_first",
    ),
    planted(
        "cancel beside a window",
        "cassq.observing.purging",
        "    if progress.window or run in fenced.expired():\n",
        "    if run in fenced.expired():\n",
        about="cancellations",
    ),
    planted(
        "cancel without moving the fence",
        "cassq.observing.purging",
        "Transaction(Cancel(new_token(), seq), marks=marks)",
        "Transaction(Cancel(head.op, seq), marks=marks)",
        about="cancellations",
    ),
    planted(
        "read on from before what was stepped over",
        "cassq.pipes.upkeep",
        "    read_from = newest.first if newest.last > last else last + 1\n",
        "    read_from = head.read_from\n",
        test="tests/unit/pipes/test_upkeep.py::test_what_waits_behind_many_that_were_cancelled_is_not_drained",
    ),
    planted(
        "cancel a number that was not pushed",
        "cassq.observing.purging",
        "    return is_pushed(fenced, seq) and Transaction(",
        "    return Transaction(",
        test=_PURGING + "test_no_number_is_cancelled_that_was_not_pushed",
    ),
    planted(
        "tell a cancellation as in vain that may still land",
        "cassq.observing.purging",
        "        return fenced is not None and seq > fenced.head.floor and fenced.head.op != self._op\n",
        "        return True\n",
        about="cancellations",
    ),
    planted(
        "let a pipe go that a cancellation was made in",
        "cassq.pipes.owned_pipe",
        "                if self.look() and self.head.cursor == before and not self.progress.window:\n",
        "                if False:\n",
        test=_PURGING + "test_what_is_cancelled_is_not_handed_out",
    ),
    planted(
        "end a take behind what was cancelled",
        "cassq.pipes.owned_pipe",
        "            if taken.runs or self.window or is_stuck or not wanted:\n",
        "            if True:\n",
        test="tests/unit/pipes/test_owned_pipe.py"
        "::test_behind_many_that_were_cancelled_a_take_finds_what_waits",
    ),
    planted(
        "publish again what has retired",
        "cassq.bulk.staged_list",
        "        return is_standing(self._storage.load_pipe(pipe))\n",
        "        return self._storage.load_pipe(pipe) is not None\n",
        test="tests/unit/bulk/test_staged_list.py::test_an_old_entry_of_a_pipe_that_retired_proves_nothing",
    ),
    planted(
        "raise that nothing was written where a cancellation before may still land",
        "cassq.observing.purging",
        "                if lost:\n                    raise lost.error from None",
        "                if False:\n                    raise lost.error from None",
        test=_PURGING
        + "TestAnAnswerThatIsLost::test_stays_unknown_where_nothing_more_can_be_read_or_sent[transact]",
    ),
    planted(
        "cancel a future that was given messages",
        "cassq.popping.pop_future",
        "            return is_there\n",
        "            return True\n",
        test=_POP_FUTURE + "test_who_cancels_what_is_on_its_way_is_told_so",
    ),
    planted(
        "keep the consumer of a cancelled future in line",
        "cassq.popping.pop_future",
        "            self._line.leave(consumer)\n            return is_there\n",
        "            return is_there\n",
        test=_POP_FUTURE + "test_who_cancels_is_given_nothing_and_the_next_one_is",
    ),
    planted(
        "give a future back and keep what it ended with",
        "cassq.popping.pop_future",
        "            if not self._server.put_back(portions_of(lasting)):\n",
        "            if not lasting:\n",
        test=_POP_FUTURE + "TestGivenBack::test_what_it_has_ended_with_goes_to_the_next_in_line",
    ),
    planted(
        "end the future of a commit that is to be tried again",
        "cassq.popping.grouped_commits",
        "        if is_through:\n            self._report(commit, error)\n",
        "        self._report(commit, error)\n",
        about="futures",
    ),
    planted(
        "end the future of a commit that failed as if it was written",
        "cassq.popping.grouped_commits",
        "        self._tell(told, error)\n",
        "        self._tell(told, None)\n",
        about="futures",
    ),
    planted(
        "count a commit as through before its failure is logged",
        "cassq.popping.grouped_commits",
        "            self._report(commit, error)\n",
        "            with self._changed:\n"
        "                self._open.pop(commit.run)\n"
        "                self._changed.notify_all()\n"
        "            return self._report(commit, error)\n",
        test=_TOLD + "test_a_flush_ends_after_what_it_tells_and_logs",
    ),
    planted(
        "let messages expire by the clock of one node",
        "cassq.pipes.expiry",
        "    now_ms -= settings.clock_skew_max // _MILLISECOND\n",
        "",
        test=_EXPIRY + "test_a_message_expires_no_sooner_than_on_every_clock",
    ),
    planted(
        "drop what lives together with what has expired",
        "cassq.model.take_plan",
        "            if has_expired not in {None, is_old}:\n                break\n            has_expired = is_old\n",
        "            has_expired = has_expired or is_old\n",
        about="expiry",
    ),
    planted(
        "drop what came back together with what has expired",
        "cassq.pipes.expiry",
        "    portion = min(portion, progress.count_left(run.first, min(last, alike[-1].last)))\n",
        "    alike = list(batches)\n",
        test=_EXPIRY + "test_of_a_run_that_came_back_what_still_lives_is_handed_out",
    ),
    planted(
        "hand out of a window what has expired",
        "cassq.pipes.window_steps",
        "    if are_old:\n        return None",
        "    if False:\n        return None",
        test=_EXPIRY + "test_no_window_hands_out_what_has_expired",
    ),
    planted(
        "forget that a run was to be dropped",
        "cassq.model.take_plan",
        "    taken, least = plan.taken.run, EXPIRY if plan.taken.run.is_expiry else least\n",
        "    taken = plan.taken.run\n",
        test=_EXPIRY + "test_who_was_dropping_and_died_is_followed_by_the_next",
    ),
    planted(
        "leave what has expired to poppers",
        "cassq.reaping.reaper",
        "        while upkeep.has_spent(owned) or expiry.has_expired(owned):\n",
        "        while upkeep.has_spent(owned):\n",
        test="tests/unit/reaping/test_reaper.py::test_what_has_expired_is_ended_though_nobody_pops",
    ),
    planted(
        "let what follows overtake the rest of a run of which a part has expired",
        "cassq.pipes.planning",
        "    is_next = (left > 0 or not wanted) and not any(plan.rest for plan in again)\n",
        "    is_next = left > 0 or not wanted\n",
        test=_EXPIRY + "TestATimeToLiveOfItsOwn::test_of_what_came_back_lets_nothing_overtake_the_rest",
    ),
    planted(
        "keep in hand what expires by a time of its own",
        "cassq.popping.buffered_leases",
        "        if is_limited(self._context.settings) and any(\n",
        "        if self._context.settings.ttl and any(\n",
        test="tests/unit/popping/test_buffered_leases.py::TestWhatIsInTheBuffer::"
        "test_goes_back_to_be_looked_at_anew_where_it_may_expire[True]",
    ),
    planted(
        "put messages of one batch under the time-to-live of others",
        "cassq.pushing.push_buffer",
        "                    or request.label != taken[0].label\n",
        "",
        about="expiry",
    ),
    planted(
        "let a message join others that expire sooner",
        "cassq.pushing.push_buffer",
        "            singles = self._singles.get(label)\n",
        "            singles = {each.of_pipe: singles for each, singles in self._singles.items()}.get(label.of_pipe)\n",
        test="tests/unit/pushing/test_push_buffer.py::"
        "test_a_batch_has_messages_of_one_time_to_live_in_the_order_of_their_pushes",
    ),
    planted(
        "let the queue's time-to-live stand for a message's own",
        "cassq.pipes.expiry",
        "        ttl_ms = batch.ttl_ms or self.ttl_ms\n",
        "        ttl_ms = self.ttl_ms or batch.ttl_ms\n",
        about="expiry",
    ),
    planted(
        "push with a time-to-live before the record says so",
        "cassq.catalog.first_uses",
        "                    self._record.change(lambda record: with_uses(record, *labels))\n",
        "                    self._record.read()\n",
        test="tests/integration/test_expiring.py::test_a_queue_says_once_that_it_has_such_messages[memory]",
    ),
    planted(
        "push with a priority before the record says so",
        "cassq.model.uses",
        "(_PRIORITY, label.priority)",
        "(_PRIORITY, 0)",
        test=_PRIORITIES + "test_a_queue_says_once_that_it_has_such_messages[memory]",
    ),
    planted(
        "list no pipes while those that are known have messages",
        "cassq.popping.rounds",
        "        if uses_priority(self._record.settings) and not self._pipes.is_read_within(BETTER_S):\n",
        "        if False:\n",
        test=_PRIORITIES + "test_what_is_urgent_overtakes_a_backlog_that_is_being_worked_off[memory]",
    ),
    planted(
        "keep claimed what is urgent while no consumer comes for it",
        "cassq.popping.fetch_thread",
        "            self._buffer.slow_s = SLOW_S\n",
        "            pass\n",
        test=_PRIORITIES + "test_a_consumer_that_works_for_long_leaves_what_is_urgent_to_others[memory]",
    ),
    planted(
        "give the most urgent every turn",
        "cassq.pushing.request_lines",
        "        if not is_of_oldest:\n",
        "        if True:\n",
        test="tests/unit/pushing/test_push_buffer.py::"
        "test_the_most_urgent_and_the_oldest_are_taken_in_turn_and_each_shares_its_batches",
    ),
    planted(
        "look only at the most urgent whether it waits too long",
        "cassq.pushing.request_lines",
        "        return any(line[0].deadline <= now for line in self._lines.values() if line)\n",
        "        return next(line[0].deadline <= now for line in self._lines.values() if line)\n",
        test="tests/unit/pushing/test_push_buffer.py::test_who_waits_too_long_behind_the_urgent_is_told_so",
    ),
    planted(
        "let a lane wait that is made while the pusher closes",
        "cassq.pushing.lane_set",
        "                if self._has_given_up:\n",
        "                if False:\n",
        test="tests/unit/pushing/test_lane_set.py::test_a_lane_that_is_made_too_late_does_not_wait_either",
    ),
    planted(
        "tend no idle lane while another is at work",
        "cassq.pushing.pusher",
        "                lanes.tend_idle(started)\n",
        "                pass\n",
        test="tests/unit/pushing/test_pusher.py::test_idle_lanes_are_tended_while_another_is_at_work",
    ),
    planted(
        "take ahead for who is at work as much as when it was fast",
        "cassq.popping.prefetch_size",
        "        if not waiting and self._given:\n",
        "        if False:\n",
        test="tests/unit/popping/test_prefetch_size.py::"
        "test_who_works_for_longer_than_before_is_slow_though_it_did_not_come_back_to_tell",
    ),
    planted(
        "let what is less urgent keep others from being claimed",
        "cassq.popping.claims",
        "        if behind:\n",
        "        if behind.clear():\n",
        test="tests/unit/popping/test_claims.py::test_what_is_less_urgent_makes_room",
    ),
    planted(
        "rank by priority alone",
        "cassq.pipes.pipe_order",
        "    begun = entry.pipe.time if ticks else 0\n",
        "    begun = 0\n",
        test="tests/unit/pipes/test_pipe_order.py::"
        "test_a_pipe_counts_as_older_by_the_ageing_for_each_step_of_its_priority",
    ),
    planted(
        "keep a pusher's pipes of all priorities in one order",
        "cassq.model.pipe",
        "        return Source(self.pusher, self.priority, self.lane, self.type, self.due_class, self.slot)\n",
        "        return Source(self.pusher, 0, self.lane, self.type)\n",
        test="tests/unit/pipes/test_pipe_order.py::"
        "test_the_younger_pipes_of_a_lane_that_is_held_back_are_passed_over",
    ),
    planted(
        "push messages of all priorities into one pipe",
        "cassq.pushing.pusher",
        "Source(self._name, label.priority, number, label.type, label.due_class, label.slot)",
        "Source(self._name, 0, number, label.type)",
        test=_PRIORITIES + "test_the_higher_priority_goes_first_and_each_in_the_order_of_its_pushes[memory]",
    ),
    planted(
        "push messages of all types into one pipe",
        "cassq.pushing.pusher",
        "Source(self._name, label.priority, number, label.type, label.due_class, label.slot)",
        "Source(self._name, label.priority, number)",
        about="types",
    ),
    planted(
        "take a list for a snapshot where pipes are taken from one after the other",
        "cassq.pipes.pipe_list",
        "        if not news:\n",
        "        if news or not news:\n",
        test=_LIST + "TestPipesThatAreTakenFromOneAfterTheOther::"
        "test_have_all_the_older_ones_of_their_source_in_the_list",
    ),
    planted(
        "take from what came after the first of two lists",
        "cassq.pipes.pipe_list",
        "as_far_as(listing.entries, again.entries)",
        "again.entries",
        test=_LIST + "TestPipesThatAreTakenFromOneAfterTheOther::"
        "test_are_not_in_it_where_they_came_after_the_first_look",
    ),
    planted(
        "go by what was known of pipes while several were taken from side by side",
        "cassq.pipes.pipe_list",
        "        if is_in_turn and not self._is_in_turn:",
        "        if False:",
        test=_LIST + "TestPipesThatAreTakenFromOneAfterTheOther::"
        "test_are_in_it_where_they_were_missed_as_several_were_taken_from_side_by_side",
    ),
    planted(
        "look for what is older than news behind the floor alone",
        "cassq.pipes.pipe_list",
        "        since = min((since, *known), key=time_key) if since and len(known) == len(news) else None\n",
        "",
        test=_LIST + "TestPipesThatAreTakenFromOneAfterTheOther::"
        "test_are_in_it_whatever_the_clock_of_their_pusher_said_when_it_was_frozen",
    ),
    planted(
        "read the pipes of all types",
        "cassq.pipes.pipe_list",
        "if self.types is None or entry.type in self.types]",
        "]",
        about="types",
    ),
    planted(
        "give every type the same number",
        "cassq.model.uses",
        "        others[name] = 1 + sum(each.startswith(_TYPE) for each in others) if name.startswith(_TYPE) else 1\n",
        "        others[name] = 1\n",
        test=_TYPES + "test_a_type_has_a_number_of_its_own_whoever_names_it_first[memory]",
    ),
    planted(
        "push with a type before the record says so",
        "cassq.model.uses",
        "    return uses | {_TYPES, _TYPE + label.type} if label.type else uses\n",
        "    return uses\n",
        test=_TYPES + "test_a_queue_says_once_that_it_has_types[memory]",
    ),
    planted(
        "wake who has waited for longest, whatever it takes",
        "cassq.coordination.port",
        "    return not found or int(found[1], 16) & types > 0\n",
        "    return True\n",
        test="tests/contract/test_coordinator_contract.py::"
        "test_only_those_are_counted_and_woken_that_take_some_of_the_types[memory]",
    ),
    planted(
        "rely on the look of one who takes less",
        "cassq.coordination.port",
        "    return wanted is not None and not int(wanted[1], 16) & ~int(found[1], 16)\n",
        "    return True\n",
        test="tests/contract/test_coordinator_contract.py::"
        "test_only_those_stand_before_a_popper_who_take_all_that_it_takes[memory]",
    ),
    planted(
        "wake for a push whoever is hungry",
        "cassq.pushing.popper_waker",
        "        types = bits_of(self._context.settings, (kind,))\n",
        "        types = 0\n",
        test=_TYPES + "test_a_push_wakes_one_who_takes_its_type_though_others_have_waited_for_longer[memory]",
    ),
    planted(
        "pass a wake-up on to who has waited for longest, whatever it takes",
        "cassq.popping.rivals",
        "        if not uses_types(settings):\n",
        "        if True:\n",
        test="tests/unit/popping/test_rivals.py::"
        "test_who_was_woken_for_nothing_wakes_one_for_each_type_that_it_takes[all]",
    ),
    planted(
        "wait anew with each popper that comes into the line",
        "cassq.popping.fetch_thread",
        "self._alarm.listen(max(0.0, until - self._clock.now()))",
        "self._alarm.listen(max(seconds, until - self._clock.now()))",
        test=_FETCH + "TestHunger::test_a_look_of_its_own_comes_however_often_others_come_meanwhile",
    ),
    planted(
        "forget what else it was woken for",
        "cassq.popping.fetch_thread",
        "                self._rivals.pass_on({run.entry.type for run, _ in fetched})\n",
        "                pass\n",
        test=_FETCH + "TestHunger::test_who_was_woken_wakes_others_for_what_else_that_may_have_been_for",
    ),
    planted(
        "leave pipes to those who take nothing of them",
        "cassq.popping.claims",
        "        meant = [claimed.owned for claimed in self if claimed.owned.entry.type in types]\n",
        "        meant = [claimed.owned for claimed in self]\n",
        test="tests/unit/popping/test_claims.py::test_others_get_what_is_empty_here_and_half_of_what_is_full",
    ),
    planted(
        "bury without the type",
        "cassq.pipes.burial",
        ", priority=entry.priority, type=entry.type, key=key)",
        ", priority=entry.priority)",
        about="types",
    ),
    planted(
        "put back without the type",
        "cassq.observing.dead_letters",
        'Label(0, letter.priority, letter.type or "", key=letter.key or "")',
        "Label(0, letter.priority)",
        test=_TYPES + "test_what_is_put_back_has_what_it_had[memory]",
    ),
    planted(
        "count what expired as popped",
        "cassq.pipes.expiry",
        "    moved = replace(moved, skipped=moved.skipped + plan.taken.count)\n",
        "",
        test=_EXPIRY + "test_where_all_has_expired_nothing_is_left_behind",
    ),
    planted(
        "hurry a future without a look of its own",
        "cassq.popping.pop_future",
        "                look = self._looks.begun + 1 if is_looking else consumer.look\n",
        "                look = self._looks.begun if is_looking else consumer.look\n",
        test=_POP_FUTURE + "TestHurried::test_it_ends_with_nothing_only_after_a_look_that_began_later",
    ),
    planted(
        "fork with a file open",
        "cassq.runtime.quiet_forks",
        "            file.fall_quiet(end)\n",
        "            pass\n",
        test=_FORKS + "test_what_a_child_pushes_is_there_when_its_parent_has_closed",
    ),
    planted(
        "let a child open what was open as it was forked off",
        "cassq.runtime.quiet_forks",
        "if self._refused and identify(path) in self._refused:",
        "if False:",
        test=_FORKS + "test_a_child_is_refused_a_file_that_was_open_as_it_was_forked_off[in a transaction]",
    ),
    planted(
        "let what interrupts a comparison of clocks wait",
        "cassq.runtime.clock",
        "        with noted(), self._guard:\n            lead",
        "        with self._guard:\n            lead",
        test="tests/unit/runtime/test_clock.py::"
        "test_what_interrupts_a_comparison_may_not_wait_for_another_thread[an answer]",
    ),
    planted(
        "tell an observer that raised of the next event",
        "cassq.runtime.event_buffer",
        "                self._listen = None\n",
        "                pass\n",
        test=_EVENTS + "test_an_observer_that_raises_is_logged_once_and_told_nothing_any_more[raises]",
    ),
    planted(
        "let an observer that exits end the thread that tells",
        "cassq.runtime.event_buffer",
        "            except BaseException:  # also",
        "            except Exception:  # not",
        test=_EVENTS + "test_an_observer_that_raises_is_logged_once_and_told_nothing_any_more[exits]",
    ),
    planted(
        "close a store before its observer has heard all",
        "cassq.store",
        "            self._events.close()\n",
        "            pass\n",
        test="tests/unit/face/test_observer.py::test_each_push_is_told_once_with_what_it_stored",
    ),
    planted(
        "show what was read before an outage",
        "cassq.metrics.exporter",
        "        self._failures += 1\n        self._round = None\n",
        "        self._failures += 1\n",
        test=_FIGURES + "test_after_a_failure_no_figure_of_before_is_shown",
    ),
    planted(
        "show what was read by a round before one that does not end",
        "cassq.metrics.exporter",
        "            found = None  # a round",
        "            pass  # a round",
        test=_FIGURES + "test_figures_of_long_ago_are_not_shown",
    ),
)

RULE_MUTANTS: tuple[Mutant, ...] = (
    *_PUSH,
    *_LEASE,
    *_TOTALS,
    *_WINDOW,
    *_REPLICAS,
    *_LETTERS,
    *_STAGING,
    *_READERS,
    *_LISTS,
    *_ORDER,
    *_RECORDS,
    *_BETWEEN,
)
