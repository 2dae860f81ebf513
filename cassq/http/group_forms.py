"""The JSON of the calls about groups.

Owns names, units and bounds, as `cassq.http.forms` does for the others.
"""

from typing import Annotated

from msgspec import Meta, Struct

from cassq.http.forms import Count, Offset, Partition, TopicMessage
from cassq.http.lease_forms import WAIT_MAX_S
from cassq.topics.group_line import LEASE_S_MAX, LEASE_S_MIN


class Declared(Struct, forbid_unknown_fields=True):
    """Where a new group begins.

    Attributes:
        start: earliest, latest, a time with its zone, or PARTITION:OFFSET[,…].
    """

    start: str = "earliest"


class Reset(Struct, forbid_unknown_fields=True):
    """Where a group goes on.

    Attributes:
        to: earliest, latest, a time with its zone, or PARTITION:OFFSET[,…], which leaves the others as they
            are.
    """

    to: str


class GroupWanted(Struct, forbid_unknown_fields=True):
    """How many messages of a partition to lease, how long to wait for them, and how long to have them."""

    count: Count = 100
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_MAX_S)] = 0
    lease_s: Annotated[float, Meta(ge=LEASE_S_MIN, le=LEASE_S_MAX)] = 30


class GroupLease(Struct):
    """The next messages of one partition, which one client has until it commits them, or its time is over.

    Attributes:
        lease: the token.
        epoch: how often the partition changed hands: it only rises, and fences writes elsewhere.
    """

    lease: str
    partition: Partition
    epoch: int
    lease_s: float
    messages: list[TopicMessage]


class GivenGroupLease(Struct, forbid_unknown_fields=True):
    """A lease, by its token."""

    lease: Annotated[str, Meta(max_length=1000)]


class GroupEnd(Struct):
    """What a lease came to: committed, or released."""

    outcome: str


class PartitionProgress(Struct):
    """How far a group is in one partition; see `cassq.PartitionLag`."""

    partition: Partition
    next: Offset
    latest: Offset
    lag: int
    owner: str
    epoch: int


class Group(Struct):
    """How far a group is."""

    name: str
    partitions: list[PartitionProgress]
