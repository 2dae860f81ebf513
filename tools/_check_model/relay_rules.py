"""The rules of relays.

Owns their names and words, and the code that carries each; where a rule stands in relay.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of relay.pml is a rule here.
"""

_RELAYED = "cassq.topics.relayed_partition.RelayedPartition"
_PIPES = "cassq.topics.relayed_pipe.RelayedPipes"

#: Name, words and functions of each.
RELAY_RULES = (
    ("name_first", "the progress names a pipe before that is created", f"{_RELAYED}._open"),
    (
        "seal_first",
        "where a pipe ends is decided before the progress leaves it",
        f"{_RELAYED}._leave {_RELAYED}._roll",
    ),
    (
        "last_in",
        "a relay goes on behind the last message that the seal lets in",
        f"{_RELAYED}._leave {_PIPES}.offset_of",
    ),
    (
        "seal_cursor",
        "the seal of a pipe that another relay may have filled looks at the cursor",
        f"{_PIPES}.settle",
    ),
    ("pipe_epoch", "a relay that takes over appends nothing to the pipe that it finds", f"{_RELAYED}.step"),
    (
        "missing_sealed",
        "a named pipe that is not there is created and sealed before the progress leaves it",
        f"{_PIPES}.settle",
    ),
    ("name_epoch", "each change of the name raises the epoch", f"{_RELAYED}._write"),
    (
        "settle_read",
        "a change of the progress whose reply is lost is settled by reading the row",
        f"{_RELAYED}._change {_RELAYED}.check",
    ),
    (
        "send_again",
        "a batch that was sent is sent again until it is acknowledged, before anything else is",
        f"{_RELAYED}._push_some",
    ),
    (
        "roll_settled",
        "a relay seals without a look at the cursor only where all that it sent is acknowledged",
        f"{_RELAYED}._push_some {_RELAYED}.leave {_RELAYED}._roll",
    ),
    (
        "create_named",
        "where a deletion leaves nothing, a pipe is created only while the progress names it",
        "cassq.storage.sqlite.topics.may_create",
    ),
    (
        "reap_named",
        "nobody but a relay begins to seal a pipe that the progress names",
        "cassq.pipes.pipe_list.PipeList.is_abandoned cassq.pipes.relayed.is_named",
    ),
    (
        "retire_named",
        "a pipe that the progress names does not retire",
        "cassq.reaping.sources.Sources.may_retire cassq.pipes.relayed.is_named",
    ),
)
