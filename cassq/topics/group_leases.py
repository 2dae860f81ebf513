"""What clients do with leases of a group, at whatever process: commit, release.

Owns nothing: the row of progress tells what stands. What must not break: each change is conditional on the
epoch and the offset that the lease was given in, so that a client that was given up moves nothing.
"""

from uuid import UUID

from cassq.errors import GroupNotFoundError, OutcomeUnknownError, PartitionLostError
from cassq.model.group_lease import GroupLease
from cassq.model.topic import Progress
from cassq.topics.topic_context import TopicContext

#: So often a change is tried whose reply is lost.
ATTEMPTS = 5


class GroupLeases:
    """The leases of one group, by their texts.

    Args:
        group: its id.
    """

    def __init__(self, context: TopicContext, group: UUID) -> None:
        self._storage = context.storage
        self._name = context.name
        self._group = group

    def commit(self, text: str) -> GroupLease:
        """Move the progress behind what was leased; return the lease. Again changes nothing.

        Raises:
            PartitionLostError: the partition changed hands since.
            GroupNotFoundError: the group was deleted.
            InvalidOptionError: the text is no lease of this group.
            OutcomeUnknownError, UnavailableError: call again.
        """
        lease = GroupLease.parse(text, self._group)
        self._change(lease, lease.after)
        return lease

    def release(self, text: str) -> GroupLease:
        """Raise the epoch, so that what was leased is lent again; return the lease. See `commit`."""
        lease = GroupLease.parse(text, self._group)
        self._change(lease, Progress(lease.partition, lease.epoch + 1, "", lease.first))
        return lease

    def _change(self, lease: GroupLease, wanted: Progress) -> None:
        for _ in range(ATTEMPTS):
            try:
                if self._storage.change_progress(self._group, lease.before, wanted):
                    return
            except OutcomeUnknownError:
                pass  # what is in flight still is conditional on what stood before
            found = self._storage.read_progress(self._group, lease.partition)
            if found is None:
                raise GroupNotFoundError(f"topic {self._name!r}: the group was deleted, or made anew")
            if found == wanted or (found.epoch == lease.epoch and found.next >= lease.next):
                return
            if (found.epoch, found.next) != (lease.epoch, lease.first):
                raise PartitionLostError(
                    f"topic {self._name!r}, partition {lease.partition}: the lease is over, and what "
                    "was not committed of it comes again"
                )
        raise OutcomeUnknownError(
            f"topic {self._name!r}, partition {lease.partition}: nobody knows whether its progress moved: "
            "call again"
        )
