"""The rules of the window lease, which no code carries yet.

Owns their names and words; where a rule stands in window.pml, the comment `RULE name` there says. What must
not break: every `NO_...` of window.pml is a rule here. Once the lease is built, they move to `rules.py`, with
their functions.
"""

#: Name and words of each.
WINDOW_RULES = (
    ("window_in_open", "a window begins in an open pipe only, as the owner saw it together with the op"),
    ("window_undecided", "a window begins only while last is undecided: IF last >= its cursor"),
    ("window_known", "nothing is handed out from a window before it is known to have begun"),
    ("window_end", "nothing behind a window's last number is handed out from it"),
    ("check_after", "a window's holder looks at its own clock after the batches were read"),
    ("window_first", "a window ends for its holder first, for others by the database's clock and a margin"),
    ("lease_whole", "for others the lease of what a window handed out ends after lease and window together"),
    ("lease_kept", "a renewal or a cut never leases a run for a shorter time than it was leased for"),
    ("end_first", "only a renewal or a cut touches a window: it is never extended or split"),
    ("cut_stops", "nothing is handed out from a window once its cut was sent"),
    ("read_after", "another owner cuts by a read of the batches that began after the window was over"),
    (
        "cut_at_newest",
        "another owner cuts behind the newest batch, not behind what it knows was handed out",
    ),
    ("drain_cut", "no drain while a window is out"),
    ("seal_window", "a window refuses the seal that settles an unknown push"),
    ("window_silent", "a window that refuses the seal tells nothing of the batch"),
    ("force_first", "a pusher that a window refuses seals by force before it waits"),
    ("pusher_cuts", "when the window is over, the pusher cuts it itself"),
)
