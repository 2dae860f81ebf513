"""The rules of keys.

Owns their names and words, and the code that each will stand on: keys are not built yet, and no function here
is theirs alone. Where a rule stands in slot.pml, the comment `RULE name` there says. What must not break:
every `NO_...` of slot.pml is a rule here.
"""

_PORT = "cassq.storage.port.Storage"
_TAKE = "cassq.pipes.owned_pipe.OwnedPipe.take"

#: Name, words and functions of each.
SLOT_RULES = (
    (
        "win_known",
        "nothing is read of a slot before its row is known to have the owner's op",
        f"{_PORT}.change_slot",
    ),
    (
        "fresh_win",
        "each attempt to win a slot sets an op of its own",
        f"{_PORT}.change_slot",
    ),
    (
        "list_anew",
        "the list of the slot's pipes is read after the row was won",
        f"{_PORT}.list_pipes",
    ),
    (
        "load_anew",
        "what an owner knew of the slot before it won the row counts for nothing",
        f"{_PORT}.load_pipe",
    ),
    (
        "load_all",
        "nothing is taken before every pipe of the slot is loaded",
        f"{_PORT}.load_pipe",
    ),
    (
        "row_after",
        "nothing is handed out before the row was read again, after the take was applied",
        f"{_PORT}.read_slot {_TAKE}",
    ),
    ("key_free", "a message is handed out only while no other one of its key is leased", _TAKE),
    (
        "in_order",
        "and only once every earlier one of its key and source has ended, also one that came back",
        _TAKE,
    ),
    (
        "older_end",
        "a younger pipe of a source waits until all of the older one is known",
        "cassq.model.progress.Progress.is_exhausted",
    ),
    (
        "give_back",
        "what is not handed out is given back",
        "cassq.pipes.held_run.HeldRun.give_back",
    ),
    (
        "mark_attempt",
        "a mark frees its key only if it carries the attempt of the run",
        "cassq.model.progress.Progress.ended_before cassq.pipes.run_rows.RunRows.cut",
    ),
    (
        "floor_attempt",
        "nor does the floor pass a message whose mark does not",
        "cassq.model.progress.Progress.raise_floor",
    ),
    (
        "lapsed_back",
        "a lease that is over by the clock frees its key only once its run was returned",
        "cassq.pipes.upkeep.return_ended cassq.pipes.upkeep.return_expired",
    ),
)
