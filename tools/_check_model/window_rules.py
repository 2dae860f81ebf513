"""The rules of the window lease.

Owns their names and words, and the code that carries each; where a rule stands in window.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of window.pml is a rule here.
"""

_W = "cassq.pipes.window_steps"
_CQL = "cassq.storage.cassandra.statements"

#: Name, words and functions of each.
WINDOW_RULES = (
    (
        "window_in_open",
        "a window begins in an open pipe only, as the owner saw it together with the op",
        f"{_W}.may_begin cassq.pipes.owned_pipe.OwnedPipe._take_from_window",
    ),
    (
        "window_undecided",
        "a window begins only while last is undecided: IF last >= its cursor",
        f"cassq.model.transaction.Advance {_CQL}.ADVANCE",
    ),
    ("window_known", "nothing is handed out from a window before it is known to have begun", f"{_W}._open"),
    ("window_end", "nothing behind a window's last number is handed out from it", f"{_W}.hand_out"),
    ("check_after", "a window's holder looks at its own clock after the batches were read", f"{_W}.hand_out"),
    (
        "window_first",
        "a window ends for its holder first, for others by the database's clock and a margin",
        "cassq.pipes.held_window.HeldWindow.ends_at cassq.model.pipe.Run.is_window_over",
    ),
    (
        "lease_whole",
        "for others the lease of what a window handed out ends after lease and window together",
        f"{_W}._open cassq.popping.claims.Claims.hold",
    ),
    (
        "lease_kept",
        "a renewal or a cut never leases a run for a shorter time than it was leased for",
        f"{_W}.renew {_W}.cut",
    ),
    (
        "end_first",
        "only a renewal or a cut touches a window: it is never extended or split",
        "cassq.pipes.held_run.HeldRun._has_row",
    ),
    ("cut_stops", "nothing is handed out from a window once its cut was sent", f"{_W}._stop"),
    (
        "read_after",
        "another owner cuts by a read of the batches that began after the window was over",
        f"{_W}.take_over",
    ),
    (
        "cut_at_newest",
        "another owner cuts behind the newest batch, not behind what it knows was handed out",
        f"{_W}.take_over",
    ),
    ("drain_cut", "no drain while a window is out", "cassq.pipes.upkeep.drain"),
    (
        "purge_cut",
        "no purge while a window is out",
        "cassq.pipes.upkeep.purge cassq.pipes.window_steps.knock",
    ),
    (
        "seal_window",
        "a window refuses the seal that settles an unknown push",
        f"cassq.model.transaction.Seal {_CQL}.SEAL",
    ),
    (
        "window_silent",
        "a window that refuses the seal tells nothing of the batch",
        "cassq.pushing.lane.Lane._settle",
    ),
    (
        "force_first",
        "a pusher that a window refuses seals by force before it waits",
        "cassq.pushing.pipe_rotation.PipeRotation.end_window",
    ),
    (
        "pusher_cuts",
        "when the window is over, the pusher cuts it itself",
        "cassq.pushing.pipe_rotation.PipeRotation.end_window",
    ),
)
