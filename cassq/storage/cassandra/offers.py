"""Offers in the tables of Cassandra.

Owns their rows, which stand beside the log, in the segment that they are for. What must not break: nothing of
two offers is mixed: each row is written whole, and its number is the timestamp of all that is in it.
"""

from collections.abc import Sequence

from cassq.model.offer import Offer
from cassq.model.topic import SegmentKey
from cassq.storage.cassandra import topic_statements as cql
from cassq.storage.cassandra.session import CassandraSession
from cassq.storage.cassandra.values import Row, decoding, to_message_number, to_text


class CassandraOffers:
    """The part of the port that is about offers."""

    _session: CassandraSession

    def offer(self, place: SegmentKey, offer: Offer) -> bool:
        """See `TopicStorage.offer`."""
        source, number, bodies, headers = offer
        values = (*place, source, number, len(bodies), bodies, headers or (), number)
        self._session.execute(cql.INSERT_OFFER, values)
        return True

    def read_offers(self, place: SegmentKey) -> Sequence[Offer] | None:
        """See `TopicStorage.read_offers`."""
        return list(map(_to_offer, self._session.execute(cql.READ_OFFERS, place)))


def _to_offer(row: Row) -> Offer:
    with decoding("an offer", row):
        source, count, number, bodies, headers = row[2], row[9], *row[11:14]
        read, of_each = tuple(bodies), tuple(map(dict, headers or ()))
        if not len(read) == count == len(of_each or read):
            raise ValueError(f"it says {count} messages, and has {len(read)} bodies")
        return Offer(to_text(source), to_message_number(number), read, of_each or None)
