"""The rules of readers that come again.

Owns their names and words, and the code that carries each; where a rule stands in reader.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of reader.pml is a rule here.
"""

_R = "cassq.bulk.run_reader.RunReader"
_S = "cassq.spark.streaming.QueueStream"

#: Name, words and functions of each.
READER_RULES = (
    ("commit_first", "what is done is committed before anything is adopted", f"{_S}.latestOffset"),
    ("commit_lease", "a run is committed under the lease that was written down", f"{_R}.commit"),
    (
        "hold_first",
        "a batch is worked on only after its leases are known to stand",
        f"{_S}.partitions {_R}.hold",
    ),
    ("done_first", "a batch is committed only after it is done", f"{_S}.commit"),
    (
        "adopt_same",
        "what is adopted keeps its lease id, so that the checkpoint alone says whose batch has it",
        f"{_R}.adopt",
    ),
)
