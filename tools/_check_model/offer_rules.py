"""The rules of offers.

Owns their names and words, and the code that carries each; where a rule stands in offers.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of offers.pml is a rule here.
"""

_END = "cassq.topics.log_end.LogEnd"
_SHARED = "cassq.topics.shared_end.SharedEnd"

#: Name, words and functions of each.
OFFER_RULES = (
    ("offer_row", "the row of a source is written by the link of what it offers", f"{_END}.link_once"),
    (
        "offer_above",
        "an offer is linked only where its number is higher than that of its source's row",
        f"{_END}._number",
    ),
    (
        "offer_segment",
        "an offer is linked only in the segment that it was offered for",
        f"{_END}._number {_SHARED}._to_request",
    ),
    (
        "offer_known",
        "callers hear once the row of the source says that the offer is linked",
        f"{_SHARED}._look {_SHARED}._offer_some",
    ),
    (
        "offer_final",
        "it is offered anew only where its segment is closed, and the row read then says: not linked",
        f"{_SHARED}._look",
    ),
    ("offer_gone", "where the segment is gone, nobody knows whether an offer was linked", f"{_SHARED}._look"),
)
