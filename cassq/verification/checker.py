"""Judges histories: what was pushed, delivered and committed, in the manner of Jepsen's total queue.

Owns the meaning of "lost", "unexpected", "damaged" and "explained": P1, P2 and P3 of docs/protocol.md as a
consumer sees them (P6 is `cassq.verification.order_rules`'s). Pure: it reads no file and no clock, and no
figure of the queue's own. What must not break: nothing is excused but by what somebody noted.

A second delivery of a message is *explained* only if the earlier one had ended in a way that may deliver
again: rolled back, or its lease was over by the holder's own count. A holder's death excuses nothing before
that. After a commit that returned nothing is explained. A commit that was told not to have happened excuses
no loss; one that was begun, and of which nothing more is known, does.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from cassq.verification.cancel_rules import CancelRules
from cassq.verification.deliveries import NotedDelivery, by_place, objection
from cassq.verification.ledger import Kind, Line
from cassq.verification.order_rules import OrderRules
from cassq.verification.purge_rules import PurgeRules
from cassq.verification.put_back_rules import Place, PutBacks
from cassq.verification.verdict import Verdict

#: Why a message was delivered again.
ROLLBACK = "rollback"
EXPIRED_LEASE = "expired lease"
DEAD_HOLDER = "dead holder"


def judge(lines: Iterable[Line]) -> Verdict:
    """Judge a history, of all holders and pushers, that was drained to its end.

    What one `who` noted comes in the order in which it was noted; between them any order does, so ledgers
    may be given one after the other, and as a stream: what is kept grows with the messages.

    - **Again.** Deliveries of a message are put in the order of their attempts, because a holder that was
      frozen notes its delivery later than whoever came after it. Each is held against all before it: they
      must have been rolled back, or their leases (`until`) be over. The reason that counts is that of the
      one just before. Unexplained are two deliveries with one attempt, one after a commit that returned, and
      one while a lease ran; so are a commit that returns twice, and one of what `who` was never given.
    - **Commits.** One that raised because the lease had ended did not happen, of that delivery; whatever
      else a begun commit came to, but for a return, leaves it open.
    - **Leases.** An extension that returned moves the end of the delivery's lease.
    - **Purges.** Of what is missing in the end as much is excused as purges told that they ended, and only
      what was pushed before such a purge returned and was out of its last holder's hands by then. A purge
      that did not return excuses whatever is missing.
    - **Cancellations.** One that returned True excuses that its message is missing, and so does one that did
      not return. Nobody has a message that was cancelled, nor does it end otherwise; one that was cancelled
      while it ran may, and may be delivered once more, to whoever was about to get it.
    - **Letters.** Each put_back that returned made one more message of that name, one that did not may have;
      `pipe` and `seq` tell them apart, and each is judged by itself. As many have to end as there must be,
      and no more may be seen than there can be. Of a letter that is gone a message must have been made,
      unless a discard was begun. Once a put_back or a discard has returned, nobody finds the letter any more.
    - **Order.** Where lines carry `pipe` and `seq`: what one `who` gets of one pipe with attempt 1 comes with
      rising numbers. Nothing is asked between two holders, between two pipes, or of later attempts. One
      exception: what somebody gives back from a popper's buffer counts no attempt, and comes late. So a
      message that is overtaken is excused if, between its push and its delivery, any holder noted
      `closing` or `holding`, or no delivery for `cassq.verification.order_rules.REST_S`.
    """
    history = _History()
    steps = history.steps()
    for line in lines:
        step = steps.get(line.kind)
        if step:
            step(line)
    return history.verdict()


class _History:
    """What is known of each message so far."""

    def __init__(self) -> None:
        self._verdict = Verdict()
        self._begun_at: dict[str, float] = {}
        self._digests: dict[str, str] = {}
        self._deliveries: defaultdict[str, list[NotedDelivery]] = defaultdict(list)
        self._deaths: defaultdict[str, list[float]] = defaultdict(list)
        self._order = OrderRules()
        self._purges = PurgeRules()
        self._cancels = CancelRules()
        self._put_backs = PutBacks()
        self._ended: defaultdict[str, set[Place]] = defaultdict(set)
        self._committed: defaultdict[str, set[Place]] = defaultdict(set)

    def steps(self) -> dict[Kind, Callable[[Line], None]]:
        """Return what to do with each kind of line; the others tell nothing of messages."""
        return {
            Kind.ATTEMPTED: self._note_push,
            Kind.ACKNOWLEDGED: self._pushes(self._verdict.acknowledged),
            Kind.REFUSED: self._pushes(self._verdict.refused),
            Kind.UNKNOWN_PUSH: self._pushes(self._verdict.unknown),
            Kind.DELIVERED: self._note_delivered,
            Kind.COMMITTING: self._note_committing,
            Kind.UNKNOWN_COMMIT: self._note_committing,
            Kind.EXPIRED: self._note_expired,
            Kind.COMMITTED: self._note_committed,
            Kind.EXTENDED: self._note_extended,
            Kind.ROLLING_BACK: self._note_rolling_back,
            Kind.GIVEN_UP: self._note_given_up,
            Kind.DEAD_LETTER: self._note_dead_letter,
            Kind.PUTTING_BACK: self._put_backs.note_begun,
            Kind.PUT_BACK: self._put_backs.note_returned,
            Kind.DISCARDING: self._put_backs.note_begun,
            Kind.DISCARDED: self._put_backs.note_returned,
            Kind.PURGING: self._purges.note_purging,
            Kind.PURGED: self._purges.note_purged,
            Kind.CANCELLING: self._cancels.note_begun,
            Kind.CANCELLED: self._cancels.note_returned,
            Kind.NOT_CANCELLED: self._cancels.note_returned,
            Kind.CLOSING: self._order.note_closing,
            Kind.HOLDING: self._order.note_closing,
            Kind.DIED: self._note_died,
            Kind.DONE: self._order.note_gone,
        }

    def _pushes(self, ended: set[str]) -> Callable[[Line], None]:
        def note(line: Line) -> None:
            self._note_push(line)
            ended.add(line.message)

        return note

    def _note_push(self, line: Line) -> None:
        self._begun_at.setdefault(line.message, line.at)
        if line.digest:
            self._digests[line.message] = line.digest

    def _note_delivered(self, line: Line) -> None:
        self._deliveries[line.message].append(NotedDelivery(line, line.until))
        if line.pipe:
            self._order.note_delivered(line)

    def _of(self, line: Line) -> list[NotedDelivery]:
        found = self._deliveries.get(line.message, ())
        return [
            one
            for one in found
            if (one.line.who, one.line.attempt) == (line.who, line.attempt)
            and (not line.pipe or one.place == (line.pipe, line.seq))
        ]

    def _note_committing(self, line: Line) -> None:
        for one in self._of(line):
            one.is_committing = True

    def _note_expired(self, line: Line) -> None:
        for one in self._of(line):
            one.is_committing = False

    def _note_extended(self, line: Line) -> None:
        for one in self._of(line):
            one.until = max(one.until, line.until)

    def _note_committed(self, line: Line) -> None:
        self._verdict.committed.add(line.message)
        mine = self._of(line)
        for one in mine:
            one.commits += 1
        if not mine:
            self._verdict.unexplained.append(
                f"{line.message}: committed by {line.who} (attempt {line.attempt}) at {line.at:.3f}, "
                "which never had it"
            )

    def _note_rolling_back(self, line: Line) -> None:
        for one in self._of(line):
            one.freed_at = line.at

    def _note_given_up(self, line: Line) -> None:
        for one in self._of(line):
            one.is_given_up = True

    def _note_dead_letter(self, line: Line) -> None:
        self._verdict.dead.add(line.message)
        self._put_backs.note_found(line)

    def _note_died(self, line: Line) -> None:
        self._deaths[line.who].append(line.at)
        self._order.note_gone(line)

    def verdict(self) -> Verdict:
        """Judge what was noted."""
        verdict = self._verdict
        verdict.attempted = set(self._begun_at)
        verdict.delivered = set(self._deliveries)
        for message, each in self._deliveries.items():
            for place, of_one in by_place(each).items():
                self._judge_message(message, place, of_one)
        self._judge_ends()
        verdict.unexplained += self._contradictions()
        verdict.unexpected = (verdict.delivered - verdict.attempted) | (verdict.delivered & verdict.refused)
        verdict.reordered = list(self._order.overtaken(self._begun_at))
        return verdict

    def _judge_ends(self) -> None:
        """Tell which messages have not ended, though they must have, and which of these purges excuse."""
        verdict, put_back = self._verdict, self._put_backs.put_back
        missing: Counter[str] = Counter()
        for message in verdict.acknowledged | put_back:
            ended = self._known_ends(message)
            # Nothing becomes a letter that was not pushed.
            missing[message] = (
                1 + self._put_backs.least(message) - max(len(ended), message in verdict.committed)
            )
        missing = +missing
        excused = self._purges.excused(
            (at, message) for message, count in missing.items() for at in self._free_at(message, count)
        )
        verdict.lost = {message for message, count in missing.items() if count > excused[message]}
        cancelled = {each for each in self._cancels.names() if not self._ends_seen(each)}
        verdict.purged = (set(excused) | cancelled) - verdict.lost

    def _known_ends(self, message: str) -> set[Place]:
        """Return the ids under which a message ended, or may have."""
        return self._ends_seen(message) | self._cancels.places(message)

    def _ends_seen(self, message: str) -> set[Place]:
        return self._ended[message] | self._put_backs.places(message)

    def _contradictions(self) -> Iterator[str]:
        verdict = self._verdict
        for message in sorted(verdict.dead & verdict.committed):
            # A commit of which nobody knew may have come to nothing, and its message to a letter.
            both = self._committed[message] & self._put_backs.places(message)
            if both or not self._put_backs.is_touched(message):
                yield f"{message}: a dead letter, though it was committed"
        yield from self._put_backs.objections()
        ends = {each: self._committed[each] | self._put_backs.places(each) for each in self._cancels.names()}
        yield from self._cancels.objections(self._deliveries, ends)
        for message, each in self._deliveries.items():
            seen = {one.place for one in each} | self._put_backs.places(message)
            most = 1 + self._put_backs.most(message)
            if len(seen - {("", 0)}) > most:
                yield f"{message}: {len(seen)} messages of that name were seen, and {most} pushed at most"

    def _free_at(self, message: str, count: int) -> list[float]:
        """Return since when so many of a name waited to be taken or purged; the delivered ones come first."""
        begun_at = self._begun_at.get(message, 0.0)
        ended = self._known_ends(message)
        free = sorted(
            max(begun_at, *(one.free_at for one in each))
            for place, each in by_place(self._deliveries.get(message, ())).items()
            if place not in ended
        )
        return [*free, *[begun_at] * count][:count]

    def _judge_message(self, message: str, place: Place, each: list[NotedDelivery]) -> None:
        verdict = self._verdict
        if len(each) > 1:
            each.sort(key=lambda one: (one.line.attempt, one.line.at))
            self._judge_again(message, each)
        pushed = self._digests.get(message) or each[0].line.digest
        for one in each:
            if one.is_committing and not one.commits:
                verdict.maybe_committed.add(message)
            if one.is_committing or one.commits:
                self._ended[message].add(place)
            if one.commits:
                self._committed[message].add(place)
            if one.commits > 1:
                verdict.unexplained.append(f"{message}: committed {one.commits} times; {one}")
            if one.line.digest and pushed and one.line.digest != pushed:
                verdict.damaged.add(message)

    def _judge_again(self, message: str, each: Sequence[NotedDelivery]) -> None:
        for place, after in enumerate(each[1:], start=1):
            # The one just before comes first: where it objects too, it is the one to name.
            for before in each[place - 1 :: -1]:
                why = objection(before, after)
                if why:
                    self._verdict.unexplained.append(f"{message}: {why}; {before}, {after}")
                    break
            else:
                self._verdict.explained[self._reason(each[place - 1], after)] += 1

    def _reason(self, before: NotedDelivery, after: NotedDelivery) -> str:
        if before.freed_at <= after.line.at:
            return ROLLBACK
        is_dead = any(before.line.at <= at <= after.line.at for at in self._deaths.get(before.line.who, ()))
        return DEAD_HOLDER if is_dead else EXPIRED_LEASE
