"""Many messages in a consumer's hands, ended together.

Owns that each of them ends once, all or none are claimed for that, and that neighbours of one run are
written as one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from cassq.errors import CassqError, ClosedError, UsageError
from cassq.limits import RETURN_PARTS_MAX
from cassq.model.ranges import Ranges
from cassq.pipes.held_run import HeldRun
from cassq.pipes.run_rows import Return
from cassq.popping.delivery import BatchSlice, Delivery
from cassq.popping.hand import Portion
from cassq.popping.observed_ends import give_back


def finish_all(deliveries: Sequence[Delivery], ending: str) -> None:
    """Claim deliveries for the one ending each of them gets; all or none.

    Raises:
        ClosedError: one of them has ended before, or is named twice.
    """
    for place, delivery in enumerate(deliveries):
        if delivery._ending:  # noqa: SLF001 - our own class, and a loop over thousands
            claimed = deliveries[:place]
            for each in claimed:
                each._ending = None  # noqa: SLF001
            delivery.check_unfinished()
            raise ClosedError(f"{delivery!r} is named twice: a delivery ends once; none of them was {ending}")
        delivery._ending = ending  # noqa: SLF001


def unended(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Return those that have not ended."""
    return [each for each in deliveries if not each.has_ended]


def portions_of(deliveries: Iterable[Delivery]) -> list[Portion]:
    """Return deliveries as what is in hand."""
    return [(each._batch_slice, each.seq, each.seq) for each in deliveries]  # noqa: SLF001 - our own class


def return_all(deliveries: Sequence[Delivery], ending: str, how: Callable[[Delivery], Return]) -> int:
    """End many so that they go back, each run as `how` says of its first: neighbours go back as one.

    Returns: how many; the others come again when their leases end at the latest.

    Raises:
        ClosedError: one of them has ended before, or is named twice; nothing was written.
        AccessDeniedError: the role may not write; what it was refused can be ended later.
        CassqError: the first that a run met; the others were given back all the same.
    """
    by_run: dict[HeldRun, list[Delivery]] = {}
    for each in deliveries:
        by_run.setdefault(each.run, []).append(each)
    hows = {run: how(own[0]) for run, own in by_run.items()}
    finish_all(deliveries, ending)
    returned = 0
    failed: CassqError | None = None
    for own, parts in _portions(by_run):
        run, messages = own[0].run, [each.handout() for each in own] if hows[own[0].run].is_last else ()
        try:
            is_written = give_back(run, parts, hows[run], messages, is_rejected=ending == "rejected")
            returned += len(own) if is_written else 0
        except CassqError as error:
            failed = failed or error
            for each in own if isinstance(error, UsageError) else ():
                each.unfinish()
    if failed:
        raise failed
    return returned


def give_all_back(deliveries: Sequence[Delivery]) -> None:
    """Give many back, which counts as no attempt; raises as `return_all`."""
    return_all(deliveries, "given back", lambda _: Return(is_counted=False))


def _portions(by_run: Mapping[HeldRun, list[Delivery]]) -> Iterator[tuple[list[Delivery], Ranges]]:
    """Yield what one transaction carries, with its stretches."""
    for run, own in by_run.items():
        own.sort(key=lambda each: each.seq)
        place = 0
        for parts in group_by_run(own)[run].portions(RETURN_PARTS_MAX):
            count = sum(part.size for part in parts)
            yield own[place : place + count], parts
            place += count


def group_by_run(deliveries: Iterable[Delivery]) -> dict[HeldRun, Ranges]:
    """Group messages by run; neighbours that follow each other cost next to nothing."""
    groups: dict[HeldRun, Ranges] = {}
    batch_slice: BatchSlice | None = None
    first = last = 0
    for delivery in deliveries:
        seq = delivery.seq
        if seq == last + 1 and delivery._batch_slice is batch_slice:  # noqa: SLF001 - our own class, a loop over thousands
            last = seq
            continue
        if batch_slice is not None:
            groups.setdefault(batch_slice.run, Ranges()).add(first, last)
        batch_slice = delivery._batch_slice  # noqa: SLF001
        first = last = seq
    if batch_slice is not None:
        groups.setdefault(batch_slice.run, Ranges()).add(first, last)
    return groups
