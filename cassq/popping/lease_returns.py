"""How messages of a lease go back: what a client says of each, checked and made ready.

Owns the checks, and what the queue's retry settings add. Pure. What must not break: each message of the lease
goes one way.
"""

from collections.abc import Iterable, Mapping

from cassq.errors import InvalidOptionError
from cassq.model.lease import Lease, Rollback
from cassq.model.retrying import NO_REASON, NO_REASON_TO_REJECT, rest_ms, to_delay_ms, to_reason
from cassq.model.settings import QueueSettings
from cassq.pipes.run_rows import Return


def to_returns(
    settings: QueueSettings,
    lease: Lease,
    rolled_back: Mapping[int, Rollback],
    rejected: Mapping[int, str],
) -> dict[int, Return]:
    """Return how messages go back, by their numbers; what is rolled back together rests alike."""
    for seq in (*rolled_back, *rejected):
        if not isinstance(seq, int) or not lease.first <= seq <= lease.last:
            raise InvalidOptionError(
                f"message {seq!r:.40} is not of {lease}, which has {lease.first} to {lease.last}"
            )
    if twice := rolled_back.keys() & rejected.keys():
        raise InvalidOptionError(f"message {min(twice)} is to be rolled back and rejected: name it once")
    attempt = lease.attempt
    first = min(rolled_back, default=lease.first)
    returns: dict[int, Return] = {}
    for seq, how in rolled_back.items():
        if not isinstance(how, Rollback):
            raise InvalidOptionError(f"message {seq} is rolled back by {how!r:.40}, not by a Rollback")
        reason = to_reason(how.reason) or NO_REASON
        delay_ms = rest_ms(settings, lease.pipe, first, attempt) if how.delay is None else 0
        delay_ms = delay_ms if how.delay is None else to_delay_ms(how.delay)
        is_last = attempt >= settings.max_attempts
        returns[seq] = Return(0 if is_last else delay_ms, reason=reason, is_last=is_last)
    for seq, why in rejected.items():
        returns[seq] = Return(reason=to_reason(why) or NO_REASON_TO_REJECT, is_last=True)
    return returns


def without(part: tuple[int, int], back: Mapping[int, Return]) -> Iterable[tuple[int, int]]:
    """Yield what of a stretch does not go back."""
    first = part[0]
    for seq in range(part[0], part[1] + 1):
        if seq in back:
            if first < seq:
                yield first, seq - 1
            first = seq + 1
    if first <= part[1]:
        yield first, part[1]
