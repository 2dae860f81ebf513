"""The rules of leases that a token names.

Owns their names and words, and the code that carries each; where a rule stands in token.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of token.pml is a rule here.
"""

_LEASES = "cassq.popping.leases.Leases"
_ROWS = "cassq.pipes.lent_rows"

#: Name, words and functions of each.
TOKEN_RULES = (
    (
        "read_first",
        "who acts by a token reads its row first, unless the lease is known here and its own clock runs",
        f"{_LEASES}.commit {_ROWS}.LentRows.read",
    ),
    (
        "left",
        "what is left of a lease one reading of the database's clock tells; with nothing left it begins anew",
        f"{_ROWS}.left_ms {_ROWS}.Seen.is_short",
    ),
    ("left_before", "what is left counts from before the read was sent", f"{_ROWS}.Seen.ends_at"),
    (
        "home_clock",
        "a process that knows a lease marks only while its own clock runs",
        f"{_LEASES}._live cassq.popping.lease_marks.LeaseMarks.write",
    ),
    (
        "revive_seen",
        "a lease that a token names begins anew only on the leased_at that was read",
        f"{_ROWS}.LentRows.begin_anew",
    ),
    ("settle_seen", "it is settled only under the lease id that was read", f"{_ROWS}.LentRows.settle"),
    (
        "settle_fresh",
        "what is settled keeps no part under the id",
        f"{_ROWS}.LentRows.settle {_ROWS}._settled",
    ),
    ("marks_first", "what is committed is marked before the rest goes back", f"{_LEASES}.settle"),
)
