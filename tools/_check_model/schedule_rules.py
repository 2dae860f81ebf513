"""The rules of schedules.

Owns their names and words, and the code that carries each; where a rule stands in schedule.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of schedule.pml is a rule here.
"""

_OCCURRENCES = "cassq.bulk.occurrences.Occurrences"
_SCHEDULES = "cassq.bulk.schedules"
_STORAGE = "cassq.storage.cassandra.storage.CassandraStorage"

#: Name, words and functions of each.
SCHEDULE_RULES = (
    (
        "schedule_op",
        "occurrences are decided on only under the op with which their schedule was read",
        f"{_OCCURRENCES}._changed {_STORAGE}.change_schedule",
    ),
    (
        "fill_first",
        "their pipe is staged, filled and sealed before that",
        f"{_OCCURRENCES}._push {_OCCURRENCES}._stage",
    ),
    ("decide_first", "and listed after it", f"{_OCCURRENCES}._push"),
    (
        "list_first",
        "a schedule names the pipe until that is known to be listed",
        f"{_OCCURRENCES}.finish {_OCCURRENCES}._push",
    ),
    (
        "finish_first",
        "while it names a pipe no more is decided on",
        f"{_OCCURRENCES}.push {_OCCURRENCES}.finish",
    ),
    ("delete_finish", "nor is the schedule deleted", f"{_SCHEDULES}.Schedules.delete"),
    ("alter_keeps", "and whoever alters it keeps that name", f"{_SCHEDULES}.Schedules.set"),
    (
        "row_stays",
        "a schedule that was deleted leaves its row, so that no creation lands late",
        f"{_STORAGE}.change_schedule cassq.storage.cassandra.schedules.deleted_values",
    ),
    (
        "target_stays",
        "nothing is deleted of a staged pipe that its schedule names",
        f"{_OCCURRENCES}.look_after",
    ),
    (
        "look_fence",
        "what its schedule does not name is deleted only once the schedule's op was moved",
        f"{_OCCURRENCES}.look_after",
    ),
    ("listed_later", "and whether it is listed was read after that", f"{_OCCURRENCES}.look_after"),
    ("due_stays", "nothing is deleted of occurrences that are listed", f"{_OCCURRENCES}.look_after"),
)
