"""Bugs planted on purpose: each a small patch to the library's own source.

Owns the patches and what each of them breaks. Checks that cannot find them prove nothing by finding nothing.
What carries a rule of the protocol and is found by a test instead of by histories is in `rule_mutants`.
"""

from journal_mutants import JOURNAL_MUTANTS
from key_mutants import KEY_MUTANTS
from lending_mutants import LENDING_MUTANTS
from moving_mutants import MOVING_MUTANTS
from planting import Edit, Mutant, check_planted, plant
from planting import planted as _one
from recurring_mutants import RECURRING_MUTANTS
from relay_mutants import RELAY_MUTANTS
from rule_mutants import RULE_MUTANTS
from schedule_mutants import SCHEDULE_MUTANTS
from token_mutants import TOKEN_MUTANTS
from topic_mutants import TOPIC_MUTANTS

__all__ = ["MUTANTS", "check_planted", "find", "plant"]


def find(name: str) -> Mutant:
    """Return a mutant by its name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)


_STATEMENTS = "cassq.storage.cassandra.statements"
_STORAGE = "cassq.storage.cassandra.storage"
_TRANSACTIONS = "cassq.storage.cassandra.transactions"

MUTANTS: tuple[Mutant, ...] = (
    # The owner
    Mutant(
        "take without the fence",
        (
            Edit(_STATEMENTS, '"op = ? AND last >= ?"', '"last >= ?"'),
            Edit(_TRANSACTIONS, "(*values, pipe, seen_op, head.cursor)", "(*values, pipe, head.cursor)"),
        ),
    ),
    Mutant(
        "take past the end that the pusher set",
        (
            Edit(_STATEMENTS, '"op = ? AND last >= ?"', '"op = ?"'),
            Edit(_TRANSACTIONS, "(*values, pipe, seen_op, head.cursor)", "(*values, pipe, seen_op)"),
        ),
    ),
    _one(
        "hand out before the transaction is applied",
        "cassq.pipes.owned_pipe",
        "        if not self.advance(head, changes, marks):\n            return None\n",
        "        self.advance(head, changes, marks)\n",
    ),
    _one(
        "believe that an unknown take was applied",
        "cassq.pipes.fenced_pipe",
        "            return self.look() and self.head.op == op\n",
        "            return self.look()\n",
    ),
    _one(
        "count the lease from the reply on",
        "cassq.pipes.owned_pipe",
        "        for plan in plans:\n            # When the lease began",
        "        sent_at = self.clock.latest() + 0.3\n"
        "        for plan in plans:\n"
        "            # When the lease began",
    ),
    _one(
        "take again without the margin for the clocks",
        "cassq.pipes.fenced_pipe",
        "if run.is_expired(self.read_ms, self.skew_ms)]",
        "if run.is_expired(self.read_ms + 2 * self.skew_ms, self.skew_ms)]",
    ),
    _one(
        "judge leases by a clock read after the marks",
        _STORAGE,
        "        runs, marks = rows.to_runs_and_marks(found, head.floor)\n",
        "        now_ms = to_ms(self._session.execute(cql.READ_CLOCK)[0][0])\n"
        "        runs, marks = rows.to_runs_and_marks(found, head.floor)\n",
        about="leases",
    ),
    _one(
        "take a run again whatever lease it has now",
        "cassq.model.take_plan",
        "    changes = [RunChange(taken, run.lease_id, run.leased_at_ms, is_leased_now=True)]\n",
        "    changes = [RunChange(taken, run.lease_id, None, is_leased_now=True)]\n",
        about="extensions",
    ),
    _one(
        "let the floor cut a run",
        "cassq.model.progress",
        "            if first <= floor:\n                floor = first - 1\n",
        "            pass\n",
    ),
    _one(
        "bury with the mark first",
        "cassq.pipes.burial",
        "    storage.change_dead(queue, added=letters)\n"
        "    marks = [Mark(*part, End.DEAD, attempt=entry.attempt_of(run)) for part in buried]\n"
        "    storage.mark(entry.pipe, context.timed(marks))\n",
        "    marks = [Mark(*part, End.DEAD, attempt=entry.attempt_of(run)) for part in buried]\n"
        "    storage.mark(entry.pipe, context.timed(marks))\n"
        "    storage.change_dead(queue, added=letters)\n",
    ),
    _one(
        "give a message up without leasing it for that",
        "cassq.pipes.run_rows",
        "        if how.is_last:\n",
        "        if how.is_last and row.attempt < 0:\n",
        about="dead letters",
    ),
    _one(
        "forget a claim that may have been lost",
        "cassq.popping.rounds",
        "keep the pipe.\n                self._claims.let_go(pipe)\n",
        "keep the pipe.\n                self._claims._claimed.pop(pipe)\n",
    ),
    # The holder
    _one(
        "believe a commit that was acknowledged too late",
        "cassq.pipes.held_run",
        "        if not self.still_runs():\n            return False\n        self._on_row",
        "        self._on_row",
        about="commits",
    ),
    Mutant(
        "extend and roll back without the lease id",
        (
            Edit(
                _STATEMENTS,
                "        _run_update(condition,",
                '        _run_update(condition.replace("lease_id = ?", "attempt >= ?"),',
            ),
            Edit(_TRANSACTIONS, '"lease_id = ?", (change.if_lease_id,)', '"lease_id = ?", (0,)'),
        ),
    ),
    _one(
        "believe that an unknown rollback did not happen",
        "cassq.pipes.held_run",
        "            # Which rows there are now is not known: nothing more is done under this lease.\n"
        "            self.ends_at = _ENDED\n",
        "",
    ),
    _one(
        "let a mark reach over the edges of a run",
        "cassq.pipes.run_rows",
        "                    yield Mark(first, last,",
        "                    yield Mark(row.first, last,",
    ),
    _one(
        "write the mark of a commit that is told to be too late",
        "cassq.popping.commits",
        '        return DeliveryExpiredError(\n            f"the lease of',
        "        try:\n            self.run.write(self._marks)\n"
        "        except CassqError:\n            pass\n"
        '        return DeliveryExpiredError(\n            f"the lease of',
    ),
    _one(
        "forget what is of another run when a group of commits is written",
        "cassq.popping.grouped_commits",
        "            for run, parts in by_run.items():\n",
        "            for run, parts in list(by_run.items())[:1]:\n",
        about="groups",
    ),
    _one(
        "write nothing of a group of commits once one of it has failed",
        "cassq.popping.grouped_commits",
        "            for commit in fresh:\n                self._try(commit)\n",
        "            for commit in fresh:\n                self._try(commit)\n"
        "                if not commit.run.is_live:\n"
        "                    for each in fresh:\n                        self._open.pop(each.run, None)\n"
        "                    break\n",
        about="groups",
    ),
    _one(
        "believe an extension that was not asked for",
        "cassq.pipes.held_run",
        "(rows and self._extend_all(rows)):\n",
        "rows:\n",
        about="extensions",
    ),
    # The operator
    _one(
        "purge what is in consumers' hands",
        "cassq.pipes.upkeep",
        "        if run.state is RunState.RETURNED\n",
        "",
        about="purges",
    ),
    _one(
        "purge more than is told",
        "cassq.pipes.upkeep",
        "    return sum(part.size for part in waiting + back)\n",
        "    return sum(part.size for part in waiting)\n",
        about="purges",
    ),
    _one(
        "remove a letter before its message is pushed",
        "cassq.observing.dead_letters",
        "        futures = moved.push(",
        "        self._storage.change_dead(self._queue, removed=[each.message_id for each in part])\n"
        "        futures = moved.push(",
        about="dead letters",
    ),
    Mutant(
        "take a letter for removed though nobody knows",
        (
            Edit(
                "cassq.observing.dead_letters",
                "            self._remove(stored)\n",
                "            with suppress(CassqError):\n                self._remove(stored)\n",
            ),
            Edit(
                "cassq.observing.dead_letters",
                "import DeadLetterNotFoundError, InvalidOptionError\n",
                "import CassqError, DeadLetterNotFoundError, InvalidOptionError\n",
            ),
            Edit(
                "cassq.observing.dead_letters",
                "from dataclasses import dataclass\n",
                "from contextlib import suppress\nfrom dataclasses import dataclass\n",
            ),
        ),
        "dead letters",
    ),
    _one(
        "leave a letter where it is after its message was pushed",
        "cassq.observing.dead_letters",
        "removed=[letter.message_id for letter in part])",
        "removed=())",
        about="dead letters",
    ),
    _one(
        "deal with the next letter where the one that was named is gone",
        "cassq.observing.dead_letters",
        "read_dead(self._queue, before, 1, until=message_id)",
        "read_dead(self._queue, before, 1)",
        about="dead letters",
    ),
    _one(
        "find a letter by a look from before",
        "cassq.observing.dead_letters",
        "            found = self._storage.read_dead(self._queue, before, 1, until=message_id)\n",
        "            found = self._storage.read_dead(self._queue, before, 1, until=message_id)\n"
        "            found = self.__dict__.setdefault('seen', {}).setdefault(message_id, found)\n",
        about="dead letters",
    ),
    _one(
        "say nothing of letters that are gone",
        "cassq.observing.dead_letters",
        "                missing.append(message_id)\n",
        "                pass\n",
        about="dead letters",
    ),
    _one(
        "tell of letters as discarded that are there still",
        "cassq.observing.dead_letters",
        "            self._remove(part)\n            count",
        "            self._remove(part[1:])\n            count",
        about="dead letters",
    ),
    _one(
        "remove letters as of now",
        _STATEMENTS,
        'f"DELETE FROM {{ks}}.dead USING TIMESTAMP {DIES_AT} "\n'
        '    "WHERE queue = ? AND shard = ? AND pipe = ? AND seq = ?"',
        '"DELETE FROM {ks}.dead WHERE queue = ? AND shard = ? AND pipe = ? AND seq = ?"',
        about="dead letters",
    ),
    # The pusher
    _one(
        "treat an unknown push as failed",
        "cassq.pushing.lane",
        "                outcome = Outcome.UNKNOWN\n",
        "                pass\n",
    ),
    _one(
        "treat an unknown push as stored",
        "cassq.pushing.lane",
        "                outcome = Outcome.UNKNOWN\n",
        "                return Outcome.ACKNOWLEDGED\n",
    ),
    Mutant(
        "seal without asking for the cursor",
        (
            Edit(_STATEMENTS, '"last = ? AND cursor <= ?"', '"last = ?"'),
            Edit(
                _TRANSACTIONS,
                "Phase.SEALED.value, pipe, UNDECIDED, NO_LIMIT if is_free else last)",
                "Phase.SEALED.value, pipe, UNDECIDED)",
            ),
        ),
    ),
    _one(
        "believe a seal that nobody confirmed",
        "cassq.pushing.lane",
        "                if self._has_given_up(callers, error):\n"
        "                    return None\n"
        "                pause = self._rest(pause, callers)\n"
        "                continue\n"
        "            if answer.is_applied:\n",
        "                return acked\n            if answer.is_applied:\n",
    ),
    _one(
        "push on into a pipe with an unsettled batch",
        "cassq.pushing.lane",
        "        self._pipes.give_up()\n        if outcome is Outcome.REFUSED:\n",
        "        if outcome is Outcome.REFUSED:\n",
    ),
    _one(
        "skip the look after a late acknowledgement",
        "cassq.pushing.pipe_rotation",
        "        return self._age(opened) > self._age_max_s + ",
        "        return self._age(opened) < 0 * self._age_max_s * ",
        about="seals",
    ),
    _one(
        "use a pipe id twice",
        "cassq.pushing.pipe_rotation",
        "        try:\n"
        "            self._storage.create_pipe(self._queue, self._entry(opened.pipe), Head(op=new_token()))\n"
        "        except OutcomeUnknownError:\n"
        "            self._unsealed.append(opened)\n"
        "            raise\n",
        "        for _ in range(20):\n"
        "            try:\n"
        "                entry = self._entry(opened.pipe)\n"
        "                self._storage.create_pipe(self._queue, entry, Head(op=new_token()))\n"
        "                break\n"
        "            except OutcomeUnknownError:\n"
        "                opened.opened_at = self._clock.latest()\n",
    ),
    _one(
        "list the pipe before its head is there",
        _STORAGE,
        "[[born], *lists.listing(queue, [entry], entry.shelf)]",
        "[*lists.listing(queue, [entry], entry.shelf), [born]]",
    ),
    _one(
        "seal behind a batch that is still on its way",
        "cassq.pushing.pipe_rotation",
        "Transaction(Seal(opened.acked, is_free=True)))\n            if not",
        "Transaction(Seal(max(0, opened.acked - 1), is_free=True)))\n            if not",
    ),
    # The reaper
    _one(
        "seal a pipe whose pusher lives",
        "cassq.pipes.pipe_list",
        "settings.push_age_max + self._context.settings.push_grace).total_seconds()\n",
        "settings.push_age_max * 0.2).total_seconds()\n",
    ),
    _one(
        "drain without a look",
        "cassq.pipes.upkeep",
        "if not head.allows(Step.DRAIN) or not fenced.reader.is_drained(head.read_from, head.cursor):",
        "if not head.allows(Step.DRAIN):",
        about="seals",
    ),
    _one(
        "retire without looking at the marks",
        "cassq.model.progress",
        "is_exhausted and not self.runs and self._ended.covers(self.head.floor + 1, self.head.last)\n",
        "is_exhausted\n",
    ),
    _one(
        "retire before the end is decided",
        "cassq.model.progress",
        "        return self.window is None and "
        "self.head.is_decided and self.head.cursor >= self.head.last\n",
        "        return self.head.phase.value == 'sealed' and (\n"
        "            not self.head.is_decided or self.head.cursor >= self.head.last\n"
        "        )\n",
    ),
    _one(
        "count totals twice",
        "cassq.reaping.totals",
        "if pipe not in record.counted]",
        "]",
    ),
    _one(
        "forget too early that a pipe was counted",
        "cassq.reaping.totals",
        "still_there = frozenset(pipe for pipe in record.counted if not self._is_retired(pipe))",
        "still_there = frozenset[UUID]()",
    ),
    _one(
        "take a missing head for a new one",
        _STORAGE,
        "        if head is None:\n            return None\n",
        "        if head is None:\n            head = Head(op=UUID(int=0))\n",
    ),
    _one(
        "delete without a far timestamp",
        _STATEMENTS,
        'f"DELETE FROM {{ks}}.waiting USING TIMESTAMP {DIES_AT} WHERE pipe = ?"',
        '"DELETE FROM {ks}.waiting USING TIMESTAMP 0 WHERE pipe = ?"',
    ),
    _one(
        "delete the entry first",
        _STORAGE,
        "                [(cql.DELETE_WAITING, (pipe,))],\n"
        "                [(cql.DELETE_PENDING, (pipe,))],\n"
        "                *lists.unlisting(queue, [pipe], shelf),\n",
        "                *lists.unlisting(queue, [pipe], shelf),\n"
        "                [(cql.DELETE_WAITING, (pipe,))],\n"
        "                [(cql.DELETE_PENDING, (pipe,))],\n",
    ),
    # Windows
    _one(
        "hand out of a window whose time is over",
        "cassq.pipes.window_steps",
        "    if fenced.clock.latest() >= window.ends_at:\n        return None\n",
        "",
        test="tests/unit/pipes/test_window_steps.py::test_nothing_is_handed_out_when_the_time_is_over",
    ),
    _one(
        "take a window over before it is over",
        "cassq.pipes.window_steps",
        "    return window is not None and window.is_window_over(fenced.read_ms, fenced.skew_ms)\n",
        "    return window is not None\n",
        about="windows",
    ),
    _one(
        "cut a dead popper's window where it began",
        "cassq.pipes.window_steps",
        "    if newest and newest.last >= window.first:\n",
        "    if False:\n",
        about="windows",
    ),
    Mutant(
        "let others count the lease without the window",
        (
            Edit(
                "cassq.pipes.window_steps",
                "lease_ms=fenced.holder.lease_ms + window_ms,",
                "lease_ms=fenced.holder.lease_ms,",
            ),
            Edit(
                "cassq.popping.claims",
                "ends_at = result.sent_at + taken.run.lease_ms / 1000",
                "ends_at = result.sent_at + (taken.run.lease_ms + taken.run.window_ms) / 1000",
            ),
        ),
        "windows",
    ),
    _one(
        "forget what was handed out when the pipe is read again",
        "cassq.pipes.fenced_pipe",
        "replace(self.head, cursor=head.cursor, read_from=head.read_from, skipped=head.skipped)",
        "self.head",
        about="windows",
    ),
    _one(
        "settle an unknown push beside a window",
        "cassq.pushing.lane",
        "Transaction(Seal(acked))",
        "Transaction(Seal(acked, is_free=True))",
        about="windows",
    ),
    _one(
        "believe a window that refuses the seal",
        "cassq.pushing.lane",
        "            if answer.cursor != WINDOW_OUT:\n",
        "            if True:\n",
        about="windows",
    ),
    _one(
        "split a run of a window that is out",
        "cassq.pipes.held_run",
        "        last = window.wait_end(self.clock, self.ends_at)\n",
        "        last = window.run.first\n",
        about="windows",
    ),
    # Replicas
    _one(
        "decide by outlines that name no bodies",
        _STATEMENTS,
        "{_PLACE}, writetime(bodies), writetime(headers)",
        "{_PLACE}, count, count",
        about="parts",
    ),
    _one(
        "decide by outlines that name no headers",
        _STATEMENTS,
        "writetime(bodies), writetime(headers)",
        "writetime(bodies), count",
        about="parts",
    ),
    _one(
        "take a batch for there that has no bodies",
        "cassq.storage.cassandra.rows",
        "    return row[3] is not None\n",
        "    return True\n",
        about="parts",
    ),
    # What poppers of one process share
    _one(
        "close what others share when one popper leaves",
        "cassq.popping.shared_intake",
        "            is_last = not self._members\n",
        "            is_last = True\n",
    ),
    # Bulk writes
    _one(
        "delete a staged pipe that the live list has",
        "cassq.bulk.staged_list",
        "        listed = self.published(entry.pipe for entry in found)\n",
        "        listed: set[UUID] = set()\n",
        about="bulk writes",
    ),
    _one(
        "tell by the staged list whether pipes are published",
        "cassq.bulk.staging",
        "        if self._list.published(pipes):\n            return True\n",
        "        return not {entry.pipe for entry in self._list.read(since(pipes)).entries} & set(pipes)\n",
        about="bulk writes",
    ),
    _one(
        "take pipes of a writer that is forgotten for lost",
        "cassq.bulk.staging",
        "            if pipes and writer.startswith(ONCE) and self._are_published(writer, batch, pipes):\n",
        "            if False:\n",
        about="bulk writes",
    ),
    _one(
        "decide a batch twice",
        "cassq.bulk.staging",
        "            if writers.is_decided(record, writer, batch):\n"
        "                raise _AlreadyDecidedError(record)\n",
        "",
        about="bulk writes",
    ),
    Mutant(
        "say that nothing is left before anything is published",
        (
            Edit(
                "cassq.bulk.staging",
                "        record = self._record.change(lambda seen: writers.finish(seen, writer, written))\n",
                "",
            ),
            Edit(
                "cassq.bulk.staging",
                "        named = read_manifest(self._storage, written.manifest)\n",
                "        named = read_manifest(self._storage, written.manifest)\n"
                "        record = self._record.change(lambda seen: writers.finish(seen, writer, written))\n",
            ),
        ),
        "bulk writes",
    ),
    _one(
        "delete what is old without moving the fence",
        "cassq.bulk.staging",
        "            record = self._record.change(lambda seen: seen)  # nobody",
        "            record = self._record.read()  # nobody",
        test="tests/integration/test_staging.py::TestADecisionInFlight"
        "::test_is_refused_once_what_is_old_was_deleted[memory]",
    ),
    # What one failure leaves behind
    Mutant(
        "look at the record no more once a look has failed",
        (
            Edit(
                "cassq.catalog.cached_record",
                "        try:\n"
                "            return self.note(look())\n"
                "        finally:\n"
                "            self._is_looking = False\n",
                "        found = self.note(look())\n        self._is_looking = False\n        return found\n",
            ),
            Edit(
                "cassq.catalog.cached_record",
                "            with suppress(UsageError):\n"
                "                self.note(self._storage.glance_queue(self._record.name))\n",
                "",
            ),
        ),
        about="operators",
    ),
    _one(
        "look at the record once and never again",
        "cassq.catalog.cached_record",
        "        return self._clock.now() - self._read_at < REFRESH_S\n",
        "        return True\n",
        about="operators",
    ),
    _one(
        "keep a pipe claimed that one failure put away",
        "cassq.popping.rounds",
        "            # What may have been leased by a lost transaction comes back when its lease ends.\n"
        "            self._claims.let_go(pipe)\n",
        "            # What may have been leased by a lost transaction comes back when its lease ends.\n"
        "            self._claims._claimed.pop(pipe, None)\n",
        about="slips",
    ),
    _one(
        "end the thread that feeds poppers with its first trouble",
        "cassq.popping.fetch_thread",
        "                self._alarm.pause(self._retry_s)  # `_feed` has told the consumers\n",
        "                break\n",
        about="slips",
    ),
    _one(
        "wake poppers at the first push alone",
        "cassq.pushing.popper_waker",
        "            to_wake, self._to_wake = self._to_wake, {}\n",
        "            to_wake = self._to_wake\n",
        about="slips",
    ),
    # Clocks that stand still
    _one(
        "trust elapsed time where a machine was paused",
        "cassq.runtime.clock",
        "                self._ahead += step\n",
        "                pass\n",
        about="pauses",
    ),
    _one(
        "let nothing of the database's clock be heard",
        "cassq.runtime.clock",
        "                self._ahead += news\n",
        "                pass\n",
        about="unseen pauses",
    ),
    _one(
        "judge a late acknowledgement by elapsed time alone",
        "cassq.pushing.pipe_rotation",
        "        return self._age(opened) > self._age_max_s + ",
        "        return self._clock.now() - opened.opened_at > self._age_max_s + ",
        about="pauses",
    ),
    _one(
        "count a lease by elapsed time alone",
        "cassq.pipes.held_run",
        "        return self.clock.latest() < self.ends_at\n",
        "        return self.clock.now() + self._ahead_s < self.ends_at\n",
        about="pauses",
    ),
    # What is due later
    *SCHEDULE_MUTANTS,
    *RECURRING_MUTANTS,
    *MOVING_MUTANTS,
    # Keys
    *KEY_MUTANTS,
    # Leases that tokens name
    *TOKEN_MUTANTS,
    # Topics
    *TOPIC_MUTANTS,
    *LENDING_MUTANTS,
    *RELAY_MUTANTS,
    *JOURNAL_MUTANTS,
    # Rules one by one
    *RULE_MUTANTS,
)
