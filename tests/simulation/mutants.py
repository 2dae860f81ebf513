"""Bugs planted on purpose: each a small patch to the library's own source.

Owns the patches and what each of them breaks. A simulation that cannot find them proves nothing by finding
nothing. A patch that does not fit the source any more fails loudly.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in one module; `old` stands there exactly once."""

    module: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug.

    Attributes:
        name: what is wrong, in a few words.
        edits: the patch.
        about: the theme of the histories that are to find it; empty for all.
    """

    name: str
    edits: tuple[Edit, ...]
    about: str = ""


class _PatchedLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from its patched source, past every cache."""

    def __init__(self, name: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str):  # type: ignore[no-untyped-def]
        source = self.get_data(self.path).decode()
        for edit in self._edits:
            if source.count(edit.old) != 1:
                raise ValueError(
                    f"{fullname}: the patch finds {source.count(edit.old)} places, not one: {edit.old!r}"
                )
            source = source.replace(edit.old, edit.new)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Planter(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        edits = [edit for edit in self._mutant.edits if edit.module == fullname]
        if not edits:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None:
            raise ImportError(f"{fullname} is not there to be patched")
        return importlib.util.spec_from_loader(fullname, _PatchedLoader(fullname, found.origin, edits))


def plant(mutant: Mutant) -> None:
    """Patch the library, which must not have been imported yet."""
    known = [edit.module for edit in mutant.edits if edit.module in sys.modules]
    if known:
        raise ImportError(f"{known} were imported already")
    sys.meta_path.insert(0, _Planter(mutant))


def check_planted(mutant: Mutant) -> None:
    """Raise ImportError unless every patched module was imported."""
    missing = [edit.module for edit in mutant.edits if edit.module not in sys.modules]
    if missing:
        raise ImportError(f"{missing} were never imported: the mutant {mutant.name!r} is not there")


def find(name: str) -> Mutant:
    """Return a mutant by its name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def _one(name: str, module: str, old: str, new: str, about: str = "") -> Mutant:
    return Mutant(name, (Edit(module, old, new),), about)


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
        "cassq.owned_pipe",
        "        if not self.advance(head, tuple(change for plan in plans for change in plan.changes)):\n"
        "            return None\n",
        "        self.advance(head, tuple(change for plan in plans for change in plan.changes))\n",
    ),
    _one(
        "believe that an unknown take was applied",
        "cassq.owned_pipe",
        "            return state.head.op == op\n",
        "            return True\n",
    ),
    _one(
        "count the lease from the reply on",
        "cassq.owned_pipe",
        "        for plan in plans:\n            # When the lease began",
        "        sent_at = self._clock.now() + 0.3\n"
        "        for plan in plans:\n"
        "            # When the lease began",
    ),
    _one(
        "take again without the margin for the clocks",
        "cassq.owned_pipe",
        "if run.is_expired(self.read_ms, self.skew_ms)]",
        "if run.is_expired(self.read_ms + 2 * self.skew_ms, self.skew_ms)]",
    ),
    _one(
        "judge leases by a clock read after the marks",
        _STORAGE,
        "        runs, marks = rows.to_runs_and_marks(found, head.floor)\n",
        "        now_ms = rows.to_ms(self._session.execute(cql.READ_CLOCK)[0][0])\n"
        "        runs, marks = rows.to_runs_and_marks(found, head.floor)\n",
        about="leases",
    ),
    _one(
        "take a run again whatever lease it has now",
        "cassq.model.taking",
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
        "cassq.owned_pipe",
        "        self.storage.change_dead(self._queue, added=letters)\n"
        "        buried = Stretches((letter.message_id.seq, letter.message_id.seq) for letter in letters)\n"
        "        marks = [Mark(part.first, part.last, End.DEAD) for part in buried]\n"
        "        self.storage.mark(self.pipe, marks)\n",
        "        buried = Stretches((letter.message_id.seq, letter.message_id.seq) for letter in letters)\n"
        "        marks = [Mark(part.first, part.last, End.DEAD) for part in buried]\n"
        "        self.storage.mark(self.pipe, marks)\n"
        "        self.storage.change_dead(self._queue, added=letters)\n",
    ),
    _one(
        "forget a claim that may have been lost",
        "cassq.feeder",
        "keep the pipe.\n                self._let_go(pipe, 0.0)\n",
        "keep the pipe.\n                self._claimed.pop(pipe)\n",
    ),
    # The holder
    _one(
        "believe a commit that was acknowledged too late",
        "cassq.held_run",
        "                if not self.is_live:\n"
        "                    may_have_happened = True\n"
        "                    break\n",
        "",
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
        "cassq.held_run",
        "                # Which rows there are now is not known: nothing more is done under this lease.\n"
        "                self.ends_at = self._clock.now()\n",
        "",
    ),
    _one(
        "let a mark reach over the edges of a run",
        "cassq.held_run",
        "            if first <= last:\n                yield Stretch(first, last)\n",
        "            if first <= last:\n                yield Stretch(row.first, last)\n",
    ),
    # The pusher
    _one(
        "treat an unknown push as failed",
        "cassq.lane",
        "                outcome = Outcome.UNKNOWN\n",
        "                pass\n",
    ),
    _one(
        "treat an unknown push as stored",
        "cassq.lane",
        "                outcome = Outcome.UNKNOWN\n",
        "                return Outcome.ACKNOWLEDGED\n",
    ),
    Mutant(
        "seal without asking for the cursor",
        (
            Edit(_STATEMENTS, '"last = ? AND cursor <= ?"', '"last = ?"'),
            Edit(
                _TRANSACTIONS,
                "Phase.SEALED.value, pipe, SEQ_MAX, SEQ_MAX if is_free else last)",
                "Phase.SEALED.value, pipe, SEQ_MAX)",
            ),
        ),
    ),
    _one(
        "believe a seal that nobody confirmed",
        "cassq.lane",
        "                if self._has_given_up(parcels, error):\n"
        "                    return None\n"
        "                pause = self._rest(pause)\n"
        "                continue\n"
        "            if answer.is_applied:\n",
        "                return acked\n            if answer.is_applied:\n",
    ),
    _one(
        "push on into a pipe with an unsettled batch",
        "cassq.lane",
        "        self._pipes.give_up()\n        if outcome is Outcome.REFUSED:\n",
        "        if outcome is Outcome.REFUSED:\n",
    ),
    _one(
        "skip the look after a late acknowledgement",
        "cassq.pipe_supply",
        "        return self._age(opened) > (settings.push_age_max + settings.push_grace / 2)"
        ".total_seconds()\n",
        "        return self._age(opened) < 0 * settings.push_age_max.total_seconds()\n",
        about="seals",
    ),
    _one(
        "use a pipe id twice",
        "cassq.pipe_supply",
        "        self._storage.create_pipe(self._queue, entry, Head(op=new_token()))\n",
        "        for _ in range(20):\n"
        "            try:\n"
        "                self._storage.create_pipe(self._queue, entry, Head(op=new_token()))\n"
        "                break\n"
        "            except OutcomeUnknownError:\n"
        "                opened.opened_at = self._clock.now()\n",
    ),
    _one(
        "list the pipe before its head is there",
        _STORAGE,
        "[[born], [listed]]",
        "[[listed], [born]]",
    ),
    _one(
        "seal behind a batch that is still on its way",
        "cassq.pipe_supply",
        "Transaction(Seal(opened.acked, is_free=True)))\n        except OutcomeUnknownError",
        "Transaction(Seal(max(0, opened.acked - 1), is_free=True)))\n        except OutcomeUnknownError",
    ),
    # The reaper
    _one(
        "seal a pipe whose pusher lives",
        "cassq.pipe_list",
        "        return (self._settings.push_age_max + self._settings.push_grace).total_seconds()\n",
        "        return 0.2 * self._settings.push_age_max.total_seconds()\n",
    ),
    _one(
        "drain without a look",
        "cassq.care",
        "if not head.allows(Step.DRAIN) or not owned.reader.is_drained(head.read_from, head.cursor):",
        "if not head.allows(Step.DRAIN):",
        about="seals",
    ),
    _one(
        "retire without looking at the marks",
        "cassq.model.progress",
        "return self.is_exhausted and self._ended.covers(self.head.floor + 1, self.head.last)",
        "return self.is_exhausted",
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
        "cassq.reaper",
        "if pipe not in record.counted]",
        "]",
    ),
    _one(
        "forget too early that a pipe was counted",
        "cassq.reaper",
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
        "                [(cql.DELETE_ENTRY, (queue, _shard(is_staged=is_staged), pipe))],\n",
        "                [(cql.DELETE_ENTRY, (queue, _shard(is_staged=is_staged), pipe))],\n"
        "                [(cql.DELETE_WAITING, (pipe,))],\n"
        "                [(cql.DELETE_PENDING, (pipe,))],\n",
    ),
    # Windows
    _one(
        "hand out of a window whose time is over",
        "cassq.windows",
        "    if owned.clock.now() >= window.ends_at:\n        return None\n",
        "",
        about="standing windows",
    ),
    _one(
        "take a window over before it is over",
        "cassq.windows",
        "    return window is not None and window.is_window_over(owned.read_ms, owned.skew_ms)\n",
        "    return window is not None\n",
        about="windows",
    ),
    _one(
        "cut a dead popper's window where it began",
        "cassq.windows",
        "    if newest and newest.last >= window.first:\n",
        "    if False:\n",
        about="windows",
    ),
    Mutant(
        "let others count the lease without the window",
        (
            Edit("cassq.windows", "lease_ms=lessee.lease_ms + window_ms,", "lease_ms=lessee.lease_ms,"),
            Edit(
                "cassq.feeder",
                "ends_at = loot.sent_at + taken.run.lease_ms / 1000",
                "ends_at = loot.sent_at + (taken.run.lease_ms + taken.run.window_ms) / 1000",
            ),
        ),
        "windows",
    ),
    _one(
        "forget what was handed out when the pipe is read again",
        "cassq.owned_pipe",
        "replace(self.head, cursor=head.cursor, read_from=head.read_from, skipped=head.skipped)",
        "self.head",
        about="windows",
    ),
    _one(
        "settle an unknown push beside a window",
        "cassq.lane",
        "Transaction(Seal(acked))",
        "Transaction(Seal(acked, is_free=True))",
        about="windows",
    ),
    _one(
        "believe a window that refuses the seal",
        "cassq.lane",
        "            if answer.cursor != SEQ_MAX:\n",
        "            if True:\n",
        about="windows",
    ),
    _one(
        "split a run of a window that is out",
        "cassq.held_run",
        "        last = window.wait_end(self._clock, self.ends_at)\n",
        "        last = window.run.first\n",
        about="windows",
    ),
    # What poppers of one process share
    _one(
        "close what others share when one popper leaves",
        "cassq.intake",
        "            is_last = not self._members\n",
        "            is_last = True\n",
    ),
)
