"""The rules of moving messages to another pipe.

Owns their names and words, and the code that carries each; where a rule stands in handover.pml, the comment
`RULE name` there says. The model moves more than the code, which moves a pile of which nothing was handed
out, or one message.
What must not break: every `NO_...` of handover.pml is a rule here.
"""

_PORT = "cassq.storage.port.Storage"
_MOVE = "cassq.reaping.hand_over.HandOver"
_KEEPER = "cassq.reaping.keeper.Keeper"
_SOURCES = "cassq.reaping.sources.Sources"
_ALONE = "cassq.reaping.rescheduling.Rescheduling"

#: Name, words and functions of each.
HANDOVER_RULES = (
    (
        "op",
        "messages are moved only under the op with which they were read",
        f"{_MOVE}.decide cassq.model.transaction.Advance",
    ),
    (
        "one_op",
        "one message alone is moved only under the op with which it was read",
        f"{_ALONE}._try {_MOVE}.decide",
    ),
    (
        "cancel_free",
        "what waits is cancelled only where no mark of it stands",
        "cassq.model.transaction.Cancel cassq.storage.cassandra.statements.SET_FIRST_MARK",
    ),
    ("stage_first", "a target is staged and filled before anything is moved to it", f"{_MOVE}.stage"),
    (
        "return_first",
        "a lease that is over is returned before its messages are moved",
        f"{_KEEPER}._make_ready {_ALONE}._try",
    ),
    ("one_t", "the decision to move is sent once", f"{_MOVE}.decide"),
    (
        "settle_fence",
        "where its outcome is unknown the op is moved before anything is deleted",
        f"{_MOVE}.decide {_KEEPER}._look_after",
    ),
    (
        "leave_gone",
        "a source that is gone tells nothing: its keeper deletes nothing",
        f"{_MOVE}.decide",
    ),
    (
        "publish_before_retire",
        "a pipe retires only once every target that its marks name is published",
        f"{_SOURCES}.finish {_SOURCES}.may_retire {_SOURCES}.left",
    ),
    (
        "whole_marks",
        "whoever asks which targets a pipe names reads all of its marks",
        f"{_PORT}.load_pipe cassq.model.progress.Progress.raise_floor",
    ),
    (
        "marks_first",
        "what a pipe names is looked for in a list that was read after its marks",
        f"{_SOURCES}.finish",
    ),
    (
        "listed_known",
        "a target leaves the staged list only once its entry in the other is acknowledged",
        f"{_PORT}.publish_pipes",
    ),
    (
        "fence_tidy",
        "what its source does not name is deleted only once the source's op was moved",
        f"{_KEEPER}._look_after",
    ),
    ("look_twice", "where the source is gone only what is staged still is deleted", f"{_KEEPER}._look_after"),
    ("live_stays", "nothing is deleted of a target that another list has", f"{_KEEPER}._look_after"),
    (
        "far_first",
        "lists are looked at in the order in which entries move through them",
        f"{_KEEPER}._look_after cassq.model.shelf.MOVING",
    ),
)
