"""The end of a partition's log that several processes publish to.

Owns who links. A compare-and-set that loses sleeps in the database, for up to 100 ms, so many must not link
side by side. Who is refused on a head that was just read *offers* its messages instead, under a number that
its source has once, and looks whether they are linked. One process, the *scribe*, links what all offer. Who
waits for too long links all that is offered, and is the scribe from then on. What must not break: an offer is
linked once, whoever links it, and in the segment that it was offered for; its callers hear once it is.

    publisher A             segment 3                        scribe B               C, frozen since it read
    | offers 7: x --------->| A offers 7                     |                      | A offers 7; op p
    |                       | <-- x at 90, A: 7, IF op = p - | applied: op q        |
    | row of A: 7, at 90 <--|                                |                      |
    | tells: 90             | <----------- x at 90, A: 7, IF op = p --------------- | refused
    |                       | --- op q, row of A: 7 ------------------------------> | linked already
"""

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import groupby
from uuid import UUID

from cassq.errors import AccessDeniedError, CassqError, OutcomeUnknownError, UnavailableError
from cassq.model.offer import Offer, new_source
from cassq.model.topic import SegmentKey, SegmentState
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.clock import rest
from cassq.topics.log_end import LogEnd
from cassq.topics.offer_watch import OfferWatch
from cassq.topics.publish_request import Numbered, PublishRequest, in_batches
from cassq.topics.topic_context import LOOK_PAUSE_S, TopicContext

#: Whether anything is offered; off, as 64 publishers were not measured on a machine that is theirs alone.
IS_ON = False

#: Who is refused twice in so long is not alone.
BUSY_S = 0.5

#: A scribe to whom nobody offers anything for so long is none any more.
QUIET_S = 1.0

#: What a scribe lets come together between two links.
ROUND_S = 0.005

#: A scribe without the claim that is refused so often in turn is not the only one.
REFUSALS_MAX = 3

Meanwhile = Callable[[bool], None]


class Form(Enum):
    """How a process publishes into a partition."""

    ALONE = "alone"  # it links what it has
    OFFERING = "offering"  # a scribe links what it has
    SCRIBE = "scribe"  # it links what all have


class SharedEnd:
    """Publishes into one partition; used by one thread at a time, that of its lane.

    Args:
        thread: the one that uses it.
    """

    def __init__(self, context: TopicContext, partition: int, thread: BackgroundThread) -> None:
        self._clock = context.clock
        self._storage = context.storage
        self._coordinator = context.coordinator
        self._claimed = f"{context.name}~", claimed(partition)
        self._partition = partition
        self._thread = thread
        self._end = LogEnd(context, partition)
        self._source = new_source()
        self._number = 0
        self._form = Form.ALONE
        self._may_offer = IS_ON
        #: Where it offers; None where that is to be found.
        self._place: SegmentKey | None = None
        #: As the scribe: what it knows to be linked of each source in a segment.
        self._linked: tuple[SegmentKey | None, dict[str, int]] = (None, {})
        self._refused_at = self._round_at = self._heard_at = float("-inf")
        self._refusals = 0
        self._usual_s = ROUND_S

    @property
    def is_scribe(self) -> bool:
        """Whether others rely on this process to link what they offer."""
        return self._form is Form.SCRIBE

    def publish(self, requests: Sequence[PublishRequest], until: float, meanwhile: Meanwhile) -> None:
        """Have all requests linked, in their order, and tell each its offset; see `LogEnd.publish`."""
        while left := [each for each in requests if not each.is_over]:
            if self._form is Form.ALONE:
                self._link_alone(left, until, meanwhile)
            elif self._form is Form.SCRIBE:
                self.tend(left, until, meanwhile)
            else:
                self._offer_some(left, until, meanwhile)

    def close(self) -> None:
        """Leave what is offered to others."""
        if self._form is not Form.ALONE:
            self._become(Form.ALONE)

    def _link_alone(self, left: Sequence[PublishRequest], until: float, meanwhile: Meanwhile) -> None:
        was_own = self._end.is_its_own
        if self._end.link_once(left, until, meanwhile):
            return
        now = self._clock.now()
        is_first, self._refused_at = was_own and now - self._refused_at > BUSY_S, now
        if is_first or not self._may_offer:  # somebody published since, perhaps long ago
            self._end.give_way(1 if is_first else 2, meanwhile)
            return
        self._place = self._end.last
        self._become(Form.SCRIBE if self._claim() else Form.OFFERING)

    def _become(self, form: Form) -> None:
        if self._form is Form.SCRIBE:
            self._coordinator.release(*self._claimed, self._source)
        self._form, self._refusals, self._heard_at = form, 0, self._clock.now()

    def _link_for_good(self) -> None:
        """Offer nothing: a link waits for nobody here."""
        self._may_offer = False
        self._become(Form.ALONE)

    def _claim(self) -> bool:
        """Ask to be the scribe; that only spares work: the head alone keeps two of them apart."""
        try:
            return self._coordinator.claim(*self._claimed, self._source)
        except (UnavailableError, AccessDeniedError):
            return False

    # The scribe

    def tend(
        self, own: Sequence[PublishRequest], until: float, meanwhile: Meanwhile = lambda _: None
    ) -> bool:
        """Link what is offered, and then what is one's own, at once; return whether anything was."""
        rest(self._clock, max(0.0, self._round_at + ROUND_S - self._clock.now()))
        try:
            has_linked = self._link_all(own, until, meanwhile)
        except CassqError:
            self._become(Form.ALONE)
            raise
        self._round_at = self._clock.now()
        return has_linked

    def _link_all(self, own: Sequence[PublishRequest], until: float, meanwhile: Meanwhile) -> bool:
        place = self._end.place()
        linked = self._linked[1] if self._linked[0] == place else {}
        self._linked = place, linked
        found = self._storage.read_offers(place)
        if found is None:
            self._link_for_good()
            return False
        mine = {each.writer for each in own}
        offered = [
            self._to_request(place, each)
            for each in found
            if each.number > linked.get(each.source, 0) and each.source not in mine
        ]
        if not offered and self._clock.now() - self._heard_at > QUIET_S and self.is_scribe:
            self._become(Form.ALONE)
        if not offered and not own:
            return False
        if not self._end.link_once([*offered, *own], until, meanwhile):
            self._refusals += 1
            has_rival = self.is_scribe and self._refusals >= REFUSALS_MAX
            if has_rival and not self._coordinator.is_held(*self._claimed, self._source):
                self._become(Form.OFFERING)
            self._end.give_way(self._refusals, meanwhile)
            return False
        linked |= {each.writer: each.number for each in (*offered, *own) if each.segment and each.is_over}
        self._refusals, self._heard_at = 0, self._clock.now() if offered else self._heard_at
        return True

    # Offers

    def _offer_some(self, left: Sequence[PublishRequest], until: float, meanwhile: Meanwhile) -> None:
        """Offer the first batch of what is left, and wait; what has a writer's number is linked at once."""
        is_numbered, run = next(groupby(left, lambda each: bool(each.writer)))
        part = next(in_batches(run))
        if is_numbered:
            self._end.publish(part, until, meanwhile)
            return
        offered = self._offer(part)
        if offered is None:
            self._link_for_good()
        elif self._wait(offered, until, meanwhile):
            offset = offered.future.result().offset
            for each in part:
                if not each.is_over:
                    each.tell(self._partition, offset)
                offset += each.count

    def _offer(self, part: Sequence[PublishRequest]) -> PublishRequest | None:
        """Offer messages in place of those before; None where nobody links offers."""
        self._place = self._place or self._end.place()
        self._number += 1
        bodies = tuple(body for each in part for body in each.bodies)
        headers = tuple(header for each in part for header in each.headers)
        offer = Offer(self._source, self._number, bodies, headers if any(headers) else None)
        try:
            if not self._storage.offer(self._place, offer):
                return None
        except OutcomeUnknownError:
            pass  # it may be there, and be linked: from now on that is to be found out
        return self._to_request(self._place, offer)

    def _to_request(self, place: SegmentKey, offer: Offer) -> PublishRequest:
        headers = offer.headers or ({},) * len(offer.bodies)
        numbered = Numbered(offer.source, offer.number)
        request = PublishRequest(self._thread, offer.bodies, headers, float("inf"), numbered)
        request.segment = place
        return request

    def _wait(self, offered: PublishRequest, until: float, meanwhile: Meanwhile) -> bool:
        """Wait until an offer is linked; return False where it never will be.

        Raises: OutcomeUnknownError: nobody knows.
        """
        watch = OfferWatch(self._clock.now(), self._usual_s)
        while True:
            rest(self._clock, watch.pause_s())
            meanwhile(True)
            try:
                if (is_linked := self._look(offered, watch)) is not None:
                    self._usual_s += (self._clock.now() - watch.begun_at - self._usual_s) / 2
                    return is_linked
                if watch.is_over(self._clock.now()) or (watch.is_late(self._clock.now()) and self._claim()):
                    watch = OfferWatch(self._clock.now(), self._usual_s)
                    self._take_over(offered, until, meanwhile)
                    if offered.is_over:
                        return True
            except UnavailableError as error:
                if self._clock.now() >= until:
                    raise OutcomeUnknownError(f"it is offered, and may be linked: {error}") from error
                rest(self._clock, LOOK_PAUSE_S)
            except OutcomeUnknownError:
                raise
            except CassqError as error:
                raise OutcomeUnknownError(f"it cannot be told any more: {error}") from error
            if self._clock.now() >= until:
                raise OutcomeUnknownError("it is offered, and may be linked")

    def _take_over(self, offered: PublishRequest, until: float, meanwhile: Meanwhile) -> None:
        """Link what all offer, on the head as it is now; who comes through is the scribe."""
        self._end.forget()
        for _ in range(REFUSALS_MAX):
            # Refused or not, it is offered still.
            if self._link_all([offered], until, lambda _: meanwhile(True)):
                self._become(Form.SCRIBE)
                self._claim()
                return
            if offered.is_over:
                return

    def _look(self, offered: PublishRequest, watch: OfferWatch) -> bool | None:
        """Tell whether an offer was linked; None where it may be still.

        Raises: OutcomeUnknownError: its segment is gone.
        """
        place = offered.segment
        if place is None:
            raise ValueError("what is looked for was offered")
        head, row = self._storage.glance_writer(place, self._source)
        if head and head.state is not SegmentState.OPEN:
            self._storage.load_head(place)  # nothing is under way by then, for ever
            head, row = self._storage.glance_writer(place, self._source)
        if head is None or head.state is not SegmentState.OPEN:
            self._place = None
            self._end.forget()
        if head is None:
            raise OutcomeUnknownError("the segment that it was offered for is gone")
        if row and row.number >= offered.number:
            offered.tell(self._partition, row.offset)
            return True
        watch.note(head.next, self._clock.now())
        return None if head.state is SegmentState.OPEN else False


def claimed(partition: int) -> UUID:
    """Return what the scribe of a partition claims."""
    return UUID(int=partition)
