"""How messages of a lease go back: what a client says of each, checked and made ready.

Owns the checks, and what the queue's retry settings add. Pure. What must not break: each message of the lease
goes one way.
"""

from collections.abc import Iterable, Mapping

from cassq.errors import DeliveryExpiredError, InvalidOptionError
from cassq.limits import RETURN_PARTS_MAX
from cassq.model.lease import Lease, Rollback
from cassq.model.retrying import NO_REASON, NO_REASON_TO_REJECT, rest_ms, to_delay_ms, to_reason
from cassq.model.settings import QueueSettings
from cassq.pipes.lent_rows import Seen, count_ways
from cassq.pipes.run_rows import Return


def to_returns(
    settings: QueueSettings,
    lease: Lease,
    rolled_back: Mapping[int, Rollback],
    rejected: Mapping[int, str],
) -> dict[int, Return]:
    """Return how messages go back, by their numbers; what is rolled back together rests alike."""
    for name, named in (("rolled_back", rolled_back), ("rejected", rejected)):
        if not isinstance(named, Mapping):
            raise InvalidOptionError(
                f"{name} must be a dict of message numbers, not {named!r:.40}: "
                "rolled_back={seq: Rollback()}, rejected={seq: 'why'}"
            )
    for seq in (*rolled_back, *rejected):
        is_number = isinstance(seq, int) and not isinstance(seq, bool)
        if not is_number or not lease.first <= seq <= lease.last:
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
    if (ways := count_ways(returns)) > RETURN_PARTS_MAX:
        raise InvalidOptionError(
            f"messages of {lease} go back in {ways} stretches with a delay and a reason of their own, "
            f"and {RETURN_PARTS_MAX} is the most: give neighbours the same, or lease fewer at a time"
        )
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


def check_settled(lease: Lease, seen: Seen, going: Mapping[int, Return], *, is_gone: bool) -> None:
    """Raise where no row stands under a lease, and others have what it was to commit or to reject."""
    if is_gone or any(how.is_last and seq not in seen.buried for seq, how in going.items()):
        raise DeliveryExpiredError(
            f"{lease} had ended, was settled before, or is not known: its messages that have not ended "
            "are delivered again"
        )
