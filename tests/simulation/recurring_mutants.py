"""Bugs planted in schedules: in who decides, what is listed when, what is deleted, what is told as missed.

Owns the patches, like `mutants`.
"""

from planting import Edit, Mutant, planted

_OCCURRENCES = "cassq.bulk.occurrences"
_SCHEDULES = "cassq.bulk.schedules"
_CATALOG = "cassq.catalog.queue_catalog"


def _recurring(name: str, module: str, old: str, new: str) -> Mutant:
    """Return a bug of one edit that histories with schedules find."""
    return planted(name, module, old, new, about="recurring")


def _together(name: str, *edits: Edit) -> Mutant:
    return Mutant(name, edits, about="recurring")


RECURRING_MUTANTS: tuple[Mutant, ...] = (
    # Staged, decided, listed
    _recurring(
        "decide on occurrences whatever became of the schedule since it was read",
        _OCCURRENCES,
        "        is_applied = self._storage.change_schedule(self._record.incarnation, name, seen, changed)\n",
        "        seen = self.find(name) or seen\n"
        "        is_applied = self._storage.change_schedule(self._record.incarnation, name, seen, changed)\n",
    ),
    _together(
        "decide on occurrences before their pipe is there",
        Edit(
            _OCCURRENCES,
            "        target = self._stage(schedule, planned.dues_ms, now_ms) if planned.dues_ms else None\n",
            "        target = self._pipe = new_pipe_id(max(now_ms, planned.dues_ms[0]))\n",
        ),
        Edit(
            _OCCURRENCES,
            "        pipe = new_pipe_id(max(now_ms, dues_ms[0]))\n",
            "        pipe = self._pipe\n",
        ),
        Edit(
            _OCCURRENCES,
            "        if planned.missed:\n            _log.",
            "        self._stage(schedule, planned.dues_ms, now_ms)\n"
            "        if planned.missed:\n            _log.",
        ),
    ),
    _recurring(
        "list occurrences before they are decided on",
        _OCCURRENCES,
        "        decided = self._changed(seen, replace(seen, schedule=wanted, target=target))\n",
        "        staged = self._storage.list_pipes(self._queue, target, until=target, shelf=Shelf.SORTED)\n"
        "        self._list(staged.entries)\n"
        "        decided = self._changed(seen, replace(seen, schedule=wanted, target=target))\n",
    ),
    _recurring(
        "say that nothing is left of a schedule before it is listed",
        _OCCURRENCES,
        "        self._list(staged.entries)\n"
        "        self._note_late(seen.target, staged.now_ms)\n"
        "        return self._changed(seen, replace(seen, target=None))\n",
        "        changed = self._changed(seen, replace(seen, target=None))\n"
        "        if changed:\n"
        "            self._list(staged.entries)\n"
        "            self._note_late(seen.target, staged.now_ms)\n"
        "        return changed\n",
    ),
    _recurring(
        "decide on occurrences while those before are not listed",
        _OCCURRENCES,
        "            record = found and self.finish(found)\n",
        "            record = found\n",
    ),
    # What applications do meanwhile
    _recurring(
        "delete a schedule whose occurrences are not listed",
        _SCHEDULES,
        "            finished = self._occurrences.finish(seen)\n",
        "            finished = seen\n",
    ),
    _recurring(
        "forget what is not listed where a schedule is altered",
        _SCHEDULES,
        "                record = replace(seen, op=new_token(), schedule=",
        "                record = replace(seen, op=new_token(), target=None, schedule=",
    ),
    _recurring(
        "begin a schedule now whose times are as they were",
        "cassq.model.recurrence",
        "        return replace(wanted, next_due=before.next_due, missed=before.missed)\n",
        "        return replace(wanted, missed=before.missed)\n",
    ),
    _together(
        "let a schedule that was deleted leave no row",
        Edit(
            "cassq.storage.cassandra.row_statements",
            "READ_SCHEDULE = Statement(\n",
            "DELETE_SCHEDULE = transaction(\n"
            '    f"DELETE FROM {{ks}}.schedules WHERE {_SCHEDULE_KEY} IF op = ?"\n'
            ")\n"
            "READ_SCHEDULE = Statement(\n",
        ),
        Edit(
            "cassq.storage.cassandra.storage",
            "        if seen is not None:\n            return self._is_applied(row_cql.CHANGE_SCHEDULE",
            "        if seen is not None and wanted is None:\n"
            "            return self._is_applied(row_cql.DELETE_SCHEDULE, (*key, seen.op))\n"
            "        if seen is not None:\n            return self._is_applied(row_cql.CHANGE_SCHEDULE",
        ),
    ),
    # What was staged for long
    _recurring(
        "delete what a schedule names",
        _OCCURRENCES,
        "        if seen and seen.target == entry.pipe:\n",
        "        if False:\n",
    ),
    _recurring(
        "delete what is staged without moving the op of its schedule",
        _OCCURRENCES,
        "        if seen and self._changed(seen, seen) is None:\n",
        "        if False:\n",
    ),
    _together(
        "read what is listed before the op of a schedule is moved",
        Edit(
            _OCCURRENCES,
            "        seen = self.find(entry.pusher.removeprefix(_PUSHER))\n",
            "        listed = self._storage.list_pipes(\n"
            "            self._queue, entry.pipe, until=entry.pipe, shelf=Shelf.DUE\n"
            "        )\n"
            "        seen = self.find(entry.pusher.removeprefix(_PUSHER))\n",
        ),
        Edit(
            _OCCURRENCES,
            "        listed = self._storage.list_pipes(self._queue, entry.pipe, until=entry.pipe, "
            "shelf=Shelf.DUE)\n",
            "",
        ),
    ),
    _recurring(
        "delete occurrences that are listed",
        _OCCURRENCES,
        "        if listed.entries:\n",
        "        if False:\n",
    ),
    # When, and what is missed
    _recurring(
        "push occurrences without their due times",
        _OCCURRENCES,
        "ttl_ms=label.ttl_ms, dues=(due_ms,))",
        "ttl_ms=label.ttl_ms)",
    ),
    _recurring(
        "count nothing as missed",
        _OCCURRENCES,
        "        missed = schedule.missed + planned.missed\n",
        "        missed = schedule.missed\n",
    ),
    _recurring(
        "count as missed whatever is late",
        "cassq.model.recurrence",
        "    while due < now - GRACE and ",
        "    while due < now and ",
    ),
    # Queues that are deleted
    Mutant(
        "delete the schedules of a deleted queue after its lists are read",
        (
            Edit(
                _CATALOG,
                "        if uses_schedules(deleted.settings):\n"
                "            self._storage.delete_schedules(deleted.incarnation)\n",
                "",
            ),
            Edit(
                _CATALOG,
                "        # With what poppers that have not heard of it yet are burying.\n",
                "        self._storage.delete_schedules(deleted.incarnation)\n",
            ),
        ),
        test="tests/unit/catalog/test_queue_catalog.py::"
        "test_nothing_is_pushed_of_a_schedule_once_the_lists_of_a_deleted_queue_are_read",
    ),
)
