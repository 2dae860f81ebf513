"""The rules of staged pipes.

Owns their names and words, and the code that carries each; where a rule stands in staging.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of staging.pml is a rule here.
"""

_S = "cassq.bulk.staging.Staging"
_L = "cassq.bulk.staged_list.StagedList"

#: Name, words and functions of each.
STAGING_RULES = (
    (
        "decide_cas",
        "a batch is decided by compare-and-set, and only above the writer's number",
        f"{_S}._try_to_decide cassq.catalog.cached_record.CachedRecord.change",
    ),
    (
        "unfinished",
        "a batch is decided only when the one before is published",
        f"{_S}._try_to_decide",
    ),
    (
        "old_check",
        "nothing is decided long after the pipes were looked at",
        f"{_S}._try_to_decide {_L}.check_are_there",
    ),
    (
        "refused_late",
        "whoever is about to refuse a batch moves the record's op first, and looks whether it was decided",
        f"{_S}._decide",
    ),
    ("publish_first", "pipes are published before the record says that nothing is left", f"{_S}._finish"),
    (
        "losers_late",
        "attempts that do not count are deleted only once the batch is published",
        f"{_S}.publish",
    ),
    (
        "fence_first",
        "whoever discards moves the record's op first, so that no decision lands behind it",
        f"{_S}.discard",
    ),
    (
        "fence_old",
        "so does whoever deletes what is old",
        f"{_S}.tidy",
    ),
    ("look_again", "and looks once more at what is staged still", f"{_S}.tidy"),
    (
        "listed_stays",
        "nothing is deleted of a staged pipe that the queue's list has",
        f"{_L}.remove",
    ),
    (
        "told_by_list",
        "whether pipes were published is told by the queue's list",
        f"{_S}._are_published",
    ),
    (
        "forgotten",
        "pipes of a writer that is forgotten are told as published if they are listed",
        f"{_S}._decide",
    ),
)
