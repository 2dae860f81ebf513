"""The rules that rest on what a read saw on the replicas.

Owns their names and words, and the code that carries each; where a rule stands in replica.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of replica.pml is a rule here.
"""

#: Name, words and functions of each.
REPLICA_RULES = (
    (
        "read_whole",
        "a read that decides names every column of the batch, so that read repair writes all of it",
        (
            "cassq.pipes.window_steps.take_over "
            "cassq.pipes.batch_reader.BatchReader.is_drained cassq.pipes.outside_view.find_pushed"
        ),
    ),
    (
        "bodies_count",
        "at an undecided end a row without bodies is not there yet",
        "cassq.pipes.window_steps.take_over cassq.pipes.batch_reader.BatchReader.is_drained",
    ),
    (
        "repair_blocking",
        "a read answers once a quorum of the replicas has what it shows",
        "cassq.storage.cassandra.storage.CassandraStorage.read_batches",
    ),
)
