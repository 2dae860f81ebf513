"""The rules of the protocol that the model can take away, and the code that carries each.

Owns their names and words; where a rule stands in the model, the comment `RULE name` there says. What must
not break: every `NO_...` of the model is a rule here, and every function named here exists.
"""

from dataclasses import dataclass

from _check_model.handover_rules import HANDOVER_RULES
from _check_model.journal_rules import JOURNAL_RULES
from _check_model.list_rules import LIST_RULES
from _check_model.offer_rules import OFFER_RULES
from _check_model.reader_rules import READER_RULES
from _check_model.relay_rules import RELAY_RULES
from _check_model.replica_rules import REPLICA_RULES
from _check_model.schedule_rules import SCHEDULE_RULES
from _check_model.slot_rules import SLOT_RULES
from _check_model.staging_rules import STAGING_RULES
from _check_model.token_rules import TOKEN_RULES
from _check_model.topic_rules import GROUP_RULES, LENDING_RULES, TOPIC_RULES
from _check_model.window_rules import WINDOW_RULES


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; its macro is NO_ and the name in capitals."""

    file: str
    name: str
    text: str
    functions: tuple[str, ...]


_STORAGE = "cassq.storage.cassandra.storage.CassandraStorage"
_CQL = "cassq.storage.cassandra.statements"


def _rules(file: str, *rows: tuple[str, str, str]) -> tuple[Rule, ...]:
    return tuple(Rule(file, name, text, tuple(functions.split())) for name, text, functions in rows)


RULES = (
    *_rules(
        "push",
        ("head_first", "the head is written before the entry", f"{_STORAGE}.create_pipe"),
        (
            "gone",
            "no head means gone",
            f"{_STORAGE}.load_pipe cassq.pushing.lane.Lane._look cassq.reaping.reaper.Reaper._examine",
        ),
        (
            "full_head",
            "no condition compares with an absent value",
            "cassq.model.pipe.Head cassq.storage.cassandra.transactions.to_answer",
        ),
        (
            "fixed_times",
            "inserts carry fixed timestamps, deletions one in the far future",
            "cassq.storage.cassandra.statement.BORN_AT cassq.storage.cassandra.statement.DIES_AT",
        ),
        (
            "one_at_a_time",
            "the next numbers only after the batch before is acknowledged or settled",
            "cassq.pushing.lane.Lane.write cassq.pushing.lane.Lane._send",
        ),
        ("number_once", "a number that was sent never names another body", "cassq.pushing.lane.Lane._send"),
        (
            "seal_undecided",
            "the pusher's seal is conditional on an undecided last",
            f"cassq.pushing.lane.Lane._settle {_CQL}.SEAL",
        ),
        (
            "seal_cursor",
            "the pusher's seal is conditional on the cursor",
            f"cassq.pushing.lane.Lane._settle {_CQL}.SEAL",
        ),
        ("id_once", "a pipe id is tried once", "cassq.pushing.pipe_rotation.PipeRotation._open"),
        (
            "seal_last",
            "the seal comes after the last acknowledgement",
            (
                "cassq.pushing.pipe_rotation.PipeRotation.writable "
                "cassq.pushing.pipe_rotation.PipeRotation.finish"
            ),
        ),
        (
            "settle_seal",
            "a seal of one's own that may be in flight is settled before anything is reported",
            "cassq.pushing.lane.Lane._settle",
        ),
        (
            "late_check",
            "a late acknowledgement is checked against the head",
            "cassq.pushing.pipe_rotation.PipeRotation.is_late cassq.pushing.lane.Lane._look",
        ),
        (
            "take_last",
            "a take is conditional on last >= its cursor",
            f"cassq.model.transaction.Advance {_CQL}.ADVANCE",
        ),
        (
            "gap_stop",
            "reads stop at the first gap",
            "cassq.pipes.batch_reader.BatchReader.read cassq.pipes.batch_reader._without_gap",
        ),
        (
            "age",
            "the seal is forced only after push_age_max + push_grace",
            "cassq.pipes.pipe_list.PipeList.is_abandoned cassq.pipes.upkeep.seal",
        ),
        (
            "seen_after",
            "a pipe is first seen when the list came back, not when it was asked for",
            "cassq.pipes.pipe_list.PipeList.refresh",
        ),
        (
            "read_after_seal",
            "drain only on a read that began after the seal was seen",
            (
                "cassq.pipes.upkeep.seal cassq.pipes.upkeep.drain "
                "cassq.pipes.batch_reader.BatchReader.is_drained"
            ),
        ),
        (
            "drain_undecided",
            "drain only while last is undecided",
            f"cassq.model.transaction.Drain {_CQL}.DRAIN",
        ),
        (
            "retire_decided",
            "retire only when last is decided",
            "cassq.pipes.upkeep.retire cassq.model.progress.Progress.is_exhausted",
        ),
        (
            "retire_cursor",
            "retire only when the cursor has reached last",
            "cassq.pipes.upkeep.retire cassq.model.progress.Progress.is_exhausted",
        ),
        ("entry_last", "deletion goes waiting, pending, entry", f"{_STORAGE}.delete_pipe"),
    ),
    *_rules(
        "lease",
        (
            "fence",
            "an owner's transaction is conditional on the op that was seen",
            f"cassq.model.transaction.Advance {_CQL}.ADVANCE",
        ),
        (
            "handout_after",
            "nothing is handed out before the take was applied",
            "cassq.pipes.owned_pipe.OwnedPipe.take",
        ),
        (
            "next_decides",
            "after an unknown outcome the next transaction decides, not the read",
            "cassq.pipes.fenced_pipe.FencedPipe.settle",
        ),
        (
            "own_op",
            "whether a transaction was one's own is told by its op",
            "cassq.pipes.fenced_pipe.FencedPipe.settle",
        ),
        (
            "holder_first",
            "the lease ends for its holder first",
            "cassq.pipes.held_run.HeldRun.is_live cassq.model.pipe.Run.is_expired",
        ),
        (
            "clock_first",
            "marks are read after the clock that says the lease is over",
            f"{_STORAGE}.load_pipe cassq.pipes.fenced_pipe.FencedPipe.expired",
        ),
        (
            "lease_seen",
            "a run is taken again on the lease_id and leased_at that were seen",
            "cassq.model.take_plan.plan_again cassq.model.transaction.RunChange",
        ),
        (
            "hold_seen",
            "a lease that was written down begins anew only if its run stands as it was read",
            "cassq.bulk.run_reader.RunReader.hold cassq.bulk.reader_leases.ReaderLeases.begin_anew",
        ),
        (
            "fresh_return",
            "a returned run has a lease id of its own and leased_at 0",
            "cassq.model.take_plan.returned cassq.pipes.run_rows.RunRows._row",
        ),
        (
            "believe_live",
            "a mark is begun and believed only while the lease runs",
            "cassq.popping.commits.Commit.try_once",
        ),
        (
            "mark_in_row",
            "a mark lies within one row of a run",
            "cassq.pipes.run_rows.RunRows.cut cassq.popping.delivery_groups.group_by_run",
        ),
        (
            "mark_longer",
            "of two marks with the same first number the longer one stands, whole",
            f"{_CQL}.MARK {_STORAGE}.mark",
        ),
        (
            "floor_at_run",
            "a floor never cuts a run that is not over",
            "cassq.model.progress.Progress.raise_floor",
        ),
        (
            "tell_all",
            "the owner hears of all rows of a run that was split",
            "cassq.pipes.held_run.HeldRun.give_back cassq.pipes.fenced_pipe.FencedPipe.note",
        ),
        ("letter_first", "dead letters are written before the mark", "cassq.pipes.owned_pipe.OwnedPipe.bury"),
        (
            "purge_fence",
            "a purge moves the fence",
            "cassq.pipes.upkeep.purge cassq.pipes.fenced_pipe.FencedPipe.advance",
        ),
        (
            "retire_ended",
            "retire only when everything has ended",
            "cassq.pipes.upkeep.retire cassq.model.progress.Progress.is_over",
        ),
    ),
    *_rules(
        "totals",
        (
            "record_first",
            "whoever counts reads the record first and the head after",
            "cassq.reaping.totals.Totals.count",
        ),
        (
            "count_cas",
            "the record is changed by compare-and-set",
            f"cassq.reaping.totals.Totals._write_totals {_STORAGE}.change_queue",
        ),
        (
            "keep_counted",
            "a pipe leaves `counted` only once it is retired or gone",
            "cassq.reaping.totals.Totals._write_totals cassq.reaping.totals.Totals._is_retired",
        ),
        ("count_first", "a pipe's counts are in before it retires", "cassq.reaping.reaper.Reaper._retire"),
    ),
    *_rules("window", *WINDOW_RULES),
    *_rules("staging", *STAGING_RULES),
    *_rules("reader", *READER_RULES),
    *_rules("replica", *REPLICA_RULES),
    *_rules("handover", *HANDOVER_RULES),
    *_rules("schedule", *SCHEDULE_RULES),
    *_rules("slot", *SLOT_RULES),
    *_rules("list", *LIST_RULES),
    *_rules("topic", *TOPIC_RULES),
    *_rules("group", *GROUP_RULES),
    *_rules("lending", *LENDING_RULES),
    *_rules("relay", *RELAY_RULES),
    *_rules("journal", *JOURNAL_RULES),
    *_rules("token", *TOKEN_RULES),
    *_rules("offers", *OFFER_RULES),
)
