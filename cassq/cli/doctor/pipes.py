"""What `cassq doctor` says of the pipes in a store, and of its schedules: whether somebody looks after them.

Owns the judgement of what is stuck. A popper's process reaps every few seconds, so whatever needed care for
minutes tells that nobody does. What must not break: what is wrong with many queues is said once.
"""

from collections.abc import Iterator
from datetime import timedelta

import cassq
from cassq.cli.doctor.finding import Finding, Level
from cassq.model.message import to_datetime
from cassq.model.pipe import Phase, RunState
from cassq.model.shelf import Shelf
from cassq.model.uses import uses_schedules, uses_types
from cassq.pipes.relayed import is_named
from cassq.pipes.shelves import list_pipes_of

#: So long a pipe may need care before it counts as stuck.
PATIENCE = timedelta(minutes=1)

#: So long messages of a type may wait while no consumer has any of it.
UNWANTED_AFTER = timedelta(hours=1)

#: So many queues of one trouble are named.
NAMED_MAX = 5

REAP = "run `cassq reap`, and let cron run it, or keep a popper running"

ABANDONED = "pipes of dead pushers still open"
OVERDUE = "runs whose lease ended long ago"
UNPUSHED = "schedules whose messages nobody pushes"
UNWANTED = "pipes of types (or of none) that no consumer takes"

#: What to do about each.
CURES = {
    ABANDONED: REAP,
    OVERDUE: REAP,
    UNPUSHED: REAP,
    UNWANTED: "see `cassq queue stats NAME --by type`, and pop these types, or all",
}


def examine(store: cassq.Store) -> Iterator[Finding]:
    """Yield what is to be said of the queues, one finding for each kind of trouble."""
    pipes: dict[str, int] = {}
    stuck: dict[str, dict[str, int]] = {words: {} for words in CURES}
    broken: dict[str, list[str]] = {}
    for name in store.queues():
        try:
            pipes[name], found = _count(store, store.find_queue(name))
        except cassq.QueueNotFoundError:
            continue  # deleted meanwhile
        except cassq.CassqError as error:
            broken.setdefault(type(error).__name__, []).append(f"{name}: {error}")
        else:
            for words, count in found.items():
                stuck[words] |= {name: count} if count else {}
    for troubles in broken.values():
        more = f" (and {len(troubles) - 1} queues like it)" if len(troubles) > 1 else ""
        yield Finding("pipes", Level.FAIL, f"queue {troubles[0]}{more}")
    for words, counts in stuck.items():
        if counts:
            yield Finding(
                "pipes", Level.WARN, f"{_name(counts)}: {sum(counts.values())} {words}", CURES[words]
            )
    if not broken and not any(stuck.values()):
        told = (
            f"{_name(pipes)}: {sum(pipes.values())} pipes, none is stuck" if pipes else "there are no queues"
        )
        yield Finding("pipes", Level.OK, told)


def _count(store: cassq.Store, queue: cassq.Queue) -> tuple[int, dict[str, int]]:
    """Return how many pipes there are, and how many of each trouble."""
    listing = store.storage.list_pipes(queue.name)
    settings = queue.settings
    gone_after = settings.push_age_max + settings.push_grace + settings.clock_skew_max + PATIENCE
    abandoned = overdue = 0
    wanted: set[str] = set() if uses_types(settings) else {""}
    old: list[str] = []
    others = list_pipes_of(store.storage, queue.name, settings, (Shelf.DUE, Shelf.KEYED))
    listed = (*listing.entries, *others)
    for entry in listed:
        state = store.storage.load_pipe(entry.pipe)
        if state is None:
            continue
        age = timedelta(milliseconds=listing.now_ms - entry.created_at_ms)
        is_old = state.head.phase is Phase.OPEN and age > gone_after
        abandoned += is_old and not is_named(store.storage, entry)  # a relay goes on from it
        late_ms = (settings.clock_skew_max + PATIENCE) / timedelta(milliseconds=1)
        overdue += sum(run.is_expired(state.now_ms, round(late_ms)) for run in state.runs)
        wanted |= {entry.type} if any(run.state is RunState.LEASED for run in state.runs) else set()
        has_waiting = not entry.due_class and state.head.is_decided and state.head.cursor < state.head.last
        old += [entry.type] if has_waiting and age > UNWANTED_AFTER else []
    unwanted = sum(kind not in wanted for kind in old)
    unpushed = 0
    if uses_schedules(settings):
        late = to_datetime(listing.now_ms) - settings.clock_skew_max - PATIENCE
        unpushed = sum(each.next_due < late for each in queue.schedules)
    troubles = {ABANDONED: abandoned, OVERDUE: overdue, UNPUSHED: unpushed, UNWANTED: unwanted}
    return len(listed), troubles


def _name(counts: dict[str, int]) -> str:
    """Name the queues, the worst first."""
    if len(counts) == 1:
        return f"queue {next(iter(counts))}"
    worst = sorted(counts, key=lambda name: -counts[name])
    rest = f" and {len(worst) - NAMED_MAX} more" if len(worst) > NAMED_MAX else ""
    return f"{len(counts)} queues ({', '.join(worst[:NAMED_MAX])}{rest})"
