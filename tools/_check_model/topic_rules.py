"""The rules of topics, of groups, and of leases of a group.

Owns their names and words, and the code that carries each; where a rule stands in topic.pml, group.pml or
lending.pml, the comment `RULE name` there says. What must not break: every `NO_...` of these is a rule here.
"""

_END = "cassq.topics.log_end.LogEnd"
_READER = "cassq.topics.log_reader.LogReader"
_RETENTION = "cassq.topics.retention.Retention"
_STORAGE = "cassq.storage.topic_port.TopicStorage"
_HELD = "cassq.topics.held_partition.HeldPartition"
_LENT = "cassq.topics.lent_partition.LentPartition"
_LEASES = "cassq.topics.group_leases.GroupLeases"

#: Name, words and functions of each.
TOPIC_RULES = (
    (
        "link_op",
        "a link is conditional on the op of the head that was seen",
        f"{_STORAGE}.link cassq.storage.cassandra.topic_statements.CHANGE_HEAD",
    ),
    ("link_known", "callers hear `published` only once the link is known to be applied", f"{_END}._link"),
    (
        "link_id",
        "whether an unknown link was one's own is told by the link id at its offset",
        f"{_END}._settle",
    ),
    (
        "link_again",
        "a link that is not settled is sent again only as the same transaction, on the op that was seen",
        f"{_END}._settle {_END}._send",
    ),
    (
        "settle_gone",
        "where the segment went meanwhile, nobody knows whether an unknown link was applied",
        f"{_END}._settle",
    ),
    (
        "writers_seen",
        "rows of writers count only together with the head that the link is conditional on",
        f"{_END}._number {_END}.forget",
    ),
    (
        "writers_carried",
        "the rows of writers go over into the next segment",
        "cassq.topics.log_end.open_next",
    ),
    (
        "final_head",
        "a segment is created only from the closed head of the one before",
        f"cassq.topics.log_end.open_next {_END}._find",
    ),
    ("retire_first", "a segment is retired before anything of it is deleted", f"{_RETENTION}._delete"),
    ("successor_stands", "a segment goes only while its successor stands", f"{_RETENTION}.run_once"),
    ("line_last", "the head of a segment goes before its line in the list", f"{_STORAGE}.delete_segment"),
    (
        "gone_head",
        "no head, or a retired one, means gone, never the end of the log",
        f"{_READER}._may_have_more",
    ),
    ("log_gap", "a reader stops at the first gap", f"{_READER}._accept"),
    (
        "gap_settled",
        "where the head counts what no read shows, it is loaded, and what it counts is read again",
        f"{_READER}._may_have_more",
    ),
    ("end_retired", "a deleted topic's last head is retired before it is cleared", f"{_RETENTION}.end"),
    (
        "end_listed",
        "the last head counts as retired only if no later one is listed after that was seen",
        f"{_RETENTION}.end",
    ),
)

#: Likewise of groups.
GROUP_RULES = (
    ("takeover_first", "nothing is delivered before the take-over was applied", f"{_HELD}.take_over"),
    ("commit_epoch", "a commit is conditional on the epoch", f"{_STORAGE}.change_progress"),
    ("commit_next", "a commit is conditional on the offset that is read next", f"{_STORAGE}.change_progress"),
    (
        "commit_done",
        "a commit never passes what was not handed out, or has not ended, in this epoch",
        f"{_HELD}.commit",
    ),
    ("reset_epoch", "an operator's reset raises the epoch", "cassq.topics.group.Group.reset"),
)

#: Likewise of what clients of a service have of a group.
LENDING_RULES = (
    ("lend_one", "of a partition one client has messages at a time", f"{_LENT}.lend"),
    (
        "lend_known",
        "the next lease begins once the one before is known to be committed",
        f"{_LENT}.note_committed {_LENT}.see",
    ),
    (
        "given_up",
        "a client is given up by letting its partition go, so that another epoch begins",
        "cassq.topics.lending.Lending.look",
    ),
    ("lent_epoch", "what a token changes is conditional on its own epoch", f"{_LEASES}.commit"),
    (
        "lent_next",
        "a token changes nothing once the offset that it was given at is passed",
        f"{_LEASES}.commit",
    ),
    ("lent_back", "a release raises the epoch", f"{_LEASES}.release"),
    (
        "lent_settled",
        "what became of a token's change whose reply is lost the row tells",
        f"{_LEASES}._change",
    ),
)
