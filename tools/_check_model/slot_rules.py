"""The rules of keys.

Owns their names and words, and the code that carries each; where a rule stands in slot.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of slot.pml is a rule here.
"""

_SLOTS = "cassq.popping.slots.Slots"
_SLOT = "cassq.popping.slot.Slot"
_JUDGE = "cassq.popping.key_gate.judge"

#: Name, words and functions of each.
SLOT_RULES = (
    (
        "win_known",
        "nothing is read of a slot before its row is known to have the owner's op",
        f"{_SLOTS}._win",
    ),
    (
        "fresh_win",
        "each attempt to win a slot sets an op of its own",
        f"{_SLOTS}._write_op",
    ),
    (
        "list_anew",
        "the list of the slot's pipes is read after the row was won",
        f"{_SLOTS}._win",
    ),
    (
        "load_anew",
        "what an owner knew of the slot before it won the row counts for nothing",
        f"{_SLOTS}._let_go",
    ),
    (
        "load_all",
        "nothing is taken before every pipe of the slot is loaded",
        f"{_SLOT}.note_listed",
    ),
    (
        "row_after",
        "nothing is handed out before the row was read again, after the take was applied",
        f"{_SLOT}.feed",
    ),
    ("key_free", "a message is handed out only while no other one of its key is leased", _JUDGE),
    (
        "in_order",
        "and only once every earlier one of its key and source has ended, also one that came back",
        _JUDGE,
    ),
    (
        "older_end",
        "a younger pipe of a source waits until all of the older one is known",
        f"{_SLOT}._in_turn",
    ),
    (
        "give_back",
        "what is not handed out is given back",
        "cassq.popping.keyed_hand.KeyedHand.let_out",
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
    (
        "note_lease",
        "a returned run that is told late is dropped where it is known under another lease by then",
        "cassq.pipes.fenced_pipe.FencedPipe.heed cassq.popping.slot.Slot._on_row_changed",
    ),
)
