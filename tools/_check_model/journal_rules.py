"""The rules of the journal.

Owns their names and words, and the code that carries each; where a rule stands in journal.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of journal.pml is a rule here.
"""

_JOURNAL = "cassq.topics.journal.Journal"
_WRITING = "cassq.reaping.journaling.Journaling"

#: Name, words and functions of each.
JOURNAL_RULES = (
    (
        "offset_first",
        "the head of a pipe names where its event is to be looked for before that is linked",
        f"{_WRITING}.retire {_JOURNAL}.end",
    ),
    (
        "name_incarnation",
        "it names the topic's incarnation; of another one's log it is looked for in all of it",
        f"{_JOURNAL}._since",
    ),
    (
        "search_all",
        "the event is looked for from the offset that is named on, in all segments",
        "cassq.topics.journal.Search.find",
    ),
    (
        "search_rest",
        "where retention took what is named, it is looked for in what is left",
        "cassq.topics.journal.reader_of_what_is_left",
    ),
    (
        "searched_op",
        "an event is linked on the op of the head up to which it was looked for",
        "cassq.topics.log_end.LogEnd.publish cassq.topics.journal.Search.find",
    ),
    (
        "event_known",
        "nothing of a pipe is deleted before its event is known to be linked",
        "cassq.reaping.reaper.Reaper._let_go cassq.reaping.reaper.Reaper._finish",
    ),
)
