"""Offers in the embedded store: there are none, as the file's lock is the turn.

Owns the part of the port that is about them. What must not break: nothing is ever offered here.
"""

from abc import abstractmethod
from collections.abc import Sequence

from cassq.model.offer import Offer
from cassq.model.topic import LogHead, SegmentKey, WriterRow


class SqliteOffers:
    """The part of the port that is about offers."""

    def offer(self, place: SegmentKey, offer: Offer) -> bool:  # noqa: ARG002
        """See `TopicStorage.offer`; a link waits for nobody but the one that holds the file."""
        return False

    def read_offers(self, place: SegmentKey) -> Sequence[Offer] | None:  # noqa: ARG002
        """See `TopicStorage.read_offers`."""
        return None

    def glance_writer(self, place: SegmentKey, writer: str) -> tuple[LogHead | None, WriterRow | None]:
        """See `TopicStorage.glance_writer`."""
        rows = {each.writer: each for each in self.read_writers(place)}
        return self.load_head(place), rows.get(writer)

    @abstractmethod
    def read_writers(self, place: SegmentKey) -> Sequence[WriterRow]:
        """See `TopicStorage.read_writers`."""

    @abstractmethod
    def load_head(self, place: SegmentKey) -> LogHead | None:
        """See `TopicStorage.load_head`."""
