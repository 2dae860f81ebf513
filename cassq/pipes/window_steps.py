"""What an owner does with a window of a pipe: begin, hand out, renew, cut, take over.

A window is a run of numbers that are not pushed yet. Its holder hands out what comes, without a transaction
for each take: in a flow that leaves one transaction for each half of a window's time. Owns the holder's steps
and the one of those who come after it; each is a single transaction behind the fence. What must not break:

- while a window is out the cursor says so, and nobody takes, drains or retires beside it;
- nothing is handed out behind the window's last number, nor, by the holder's clock read after the batches
  were, after its time;
- nothing is handed out once a cut was sent, or before the window is known to be applied;
- others cut only what is over by the database's clock, behind the newest batch that a read shows after that,
  and leave the lease as it is: the messages may be in consumers' hands.

    holder                          database                              another owner
    | begin 8..10007 -------------> | cursor undecided, run 8..10007
    | read 8, 9: hand out           |
    | renew behind 9 -------------> | run 8..9, run 10..10009
    | read 10: hand out (killed)    |
                                    | <-- the window is over: newest is 11 |
                                    | <-- cut behind 11: run 10..11 ------ | leased until its lease ends
"""

from dataclasses import replace

from cassq.model.ids import new_token
from cassq.model.pipe import Head, Phase, Run, RunState
from cassq.model.ranges import Range
from cassq.model.take_plan import Room, Taken, plan_fresh
from cassq.model.transaction import RunChange
from cassq.pipes import expiry
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.held_window import HeldWindow
from cassq.pipes.outside_view import find_newest

#: So many numbers a window has at most; nobody pays for those that are not used.
WINDOW_MESSAGES = 10_000

#: For so long a window is handed out, and for half a lease at most. Longer ones cost fewer transactions, and
#: whoever comes after a holder that died waits for this long.
WINDOW_MS = 1000

#: In a flow a window is renewed from this part of its time or its numbers on.
RENEW_FROM = 0.5

#: How often a cut is tried that other owners' changes meet.
CUT_ATTEMPTS = 3

#: After a renewal or a cut that was refused no window begins for so long: somebody may want to come between.
#: Meanwhile each take costs its transaction.
SHY_S = 2.0


def may_begin(fenced: FencedPipe) -> bool:
    """Tell whether a window may begin: in an open pipe whose waiting messages were all read, and are due.

    In none of a slot: what is out of a window no row tells, and so no key is known to be free.
    """
    return (
        not fenced.entry.due_class
        and not fenced.entry.is_keyed
        and fenced.head.phase is Phase.OPEN
        and not fenced.head.is_decided
        and fenced.reader.is_at_end
        and fenced.clock.now() >= fenced.no_window_until
    )


def begin(fenced: FencedPipe) -> bool:
    """Lease the numbers behind the cursor; False when that was refused."""
    return _open(fenced, fenced.head.cursor)


def renew(fenced: FencedPipe) -> bool:
    """End the window behind what was handed out of it, which is something, and begin the next one there.

    Returns: whether that was applied; if not, the window is to be cut, where it still is the owner's.
    """
    window, head = _stop(fenced)
    ended = _ended(window.run, head.cursor)
    fenced.progress.note_run(replace(ended, leased_at_ms=fenced.estimate_now_ms()))
    is_renewed = False
    try:
        is_renewed = _open(fenced, head.cursor, RunChange(ended, window.run.lease_id, is_leased_now=True))
        if not is_renewed:
            fenced.no_window_until = fenced.clock.now() + SHY_S
            fenced.keep_window(window, head)
    finally:
        if is_renewed:
            window.end(head.cursor)
        elif fenced.window is not window:
            window.lose()
    return is_renewed


def cut(fenced: FencedPipe) -> bool:
    """End the window behind what was handed out of it; False: refused, it is not this owner's any more."""
    window, head = _stop(fenced)
    ended = _ended(window.run, head.cursor)
    is_cut = False
    try:
        for _ in range(CUT_ATTEMPTS):
            if ended.last >= ended.first:
                fenced.progress.note_run(replace(ended, leased_at_ms=fenced.estimate_now_ms()))
            is_cut = fenced.advance(head, (RunChange(ended, window.run.lease_id, is_leased_now=True),))
            if is_cut:
                break
            # Another owner may have sealed the pipe, or knocked: then the window is there, and still held.
            fenced.no_window_until = fenced.clock.now() + SHY_S
            fenced.keep_window(window, head)
            if fenced.window is not window:
                break
            _stop(fenced)
    finally:
        if is_cut:
            fenced.progress.window = None
            window.end(head.cursor)
        else:
            window.lose()
    return is_cut


def is_over(fenced: FencedPipe) -> bool:
    """Tell whether the window that stands was over for everybody before the last read of the pipe."""
    window = fenced.progress.window
    return window is not None and window.is_window_over(fenced.read_ms, fenced.skew_ms)


def take_over(fenced: FencedPipe) -> bool:
    """End a window that is over, behind all that may have been handed out of it; False: refused."""
    window = fenced.progress.window
    if window is None or not is_over(fenced):
        return False
    newest = find_newest(fenced.storage, fenced.pipe, window.last)
    head = fenced.head
    last, read_from = head.cursor, head.read_from
    if newest and newest.last >= window.first:
        last = min(newest.last, window.last, head.last)
        read_from = last + 1 if newest.last <= last else newest.first
    ended = _ended(window, last)
    skipped = head.skipped + fenced.progress.count_cancelled(head.cursor + 1, last)
    moved = replace(head, cursor=last, read_from=read_from, skipped=skipped)
    if not fenced.advance(moved, (RunChange(ended, window.lease_id),)):
        return False
    fenced.progress.window = None
    if ended.last >= ended.first:
        fenced.progress.note_run(ended)
    return True


def knock(fenced: FencedPipe) -> None:
    """Have another owner's window end: with a fresh op a renewal is refused, and then its holder cuts it."""
    fenced.advance(fenced.head, is_window_out=True)


def hand_out(fenced: FencedPipe, window: HeldWindow, wanted: int) -> Taken | None:
    """Return what came since, up to `wanted` messages; None when the window is to end."""
    head = fenced.head
    room = window.run.last - head.cursor
    if room <= 0:
        return None
    wanted = min(wanted, room)
    batches = fenced.reader.read(head.read_from, head.cursor, wanted) if wanted > 0 else ()
    if fenced.clock.latest() >= window.ends_at:
        return None
    lifetime = expiry.lifetime_now(fenced)
    batches, are_old = lifetime.leading(fenced.progress, batches, Range(head.cursor + 1, head.last))
    if are_old:
        return None  # no message of a window is ended: it is cut, and they are taken
    moved, plan = plan_fresh(fenced.progress, batches, Room(wanted), fenced.holder)
    if moved.cursor > window.run.last:
        return None  # by messages that were cancelled: the window ends among them
    fenced.progress.note_head(moved)
    if plan is None:
        return Taken(window.run, (), ())
    window.handed_out += plan.taken.count
    window.reached = moved.cursor
    return replace(plan.taken, run=window.run)


def wants_renewal(fenced: FencedPipe, window: HeldWindow) -> bool:
    """Tell whether half of the window's time, or of its numbers, is used."""
    used = fenced.clock.latest() - window.sent_at
    room = window.run.last - fenced.head.cursor
    size = window.run.last - window.run.first + 1
    return used >= RENEW_FROM * window.run.window_ms / 1000 or room < RENEW_FROM * size


def _open(fenced: FencedPipe, behind: int, *changes: RunChange) -> bool:
    window_ms = min(WINDOW_MS, fenced.holder.lease_ms // 2)
    run = Run(
        first=behind + 1,
        last=behind + WINDOW_MESSAGES,
        read_from=min(fenced.head.read_from, behind + 1),
        state=RunState.LEASED,
        attempt=1,
        lease_id=new_token(),
        leased_at_ms=0,
        lease_ms=fenced.holder.lease_ms + window_ms,
        not_before_ms=0,
        holder=fenced.holder.name,
        window_ms=window_ms,
    )
    fenced.window = HeldWindow(run, fenced.clock.latest(), fenced.on_end_asked)
    is_open = False
    try:
        change = RunChange(run, is_leased_now=True)
        is_open = fenced.advance(fenced.head, (*changes, change), is_window_out=True)
    finally:
        # With the op of another owner on top it is told as refused; that it stands shows that it was applied.
        standing = fenced.progress.window
        is_open = is_open or (standing is not None and standing.lease_id == run.lease_id)
        if is_open:
            fenced.progress.window = run
        else:
            fenced.window = None
    return is_open


def _stop(fenced: FencedPipe) -> tuple[HeldWindow, Head]:
    """Hand out nothing more of the held window; return it, and how far it was handed out."""
    window = fenced.window
    if window is None:
        raise AssertionError("only a holder ends its window")
    fenced.window = None
    return window, fenced.head


def _ended(run: Run, last: int) -> Run:
    return replace(run, last=max(last, run.first - 1), window_ms=0)
