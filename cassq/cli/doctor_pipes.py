"""What `cassq doctor` says of the pipes in a store: whether somebody heals what died.

Owns the judgement of what is stuck. A popper's process reaps every few seconds, so whatever needed care for
minutes tells that nobody does.
"""

from collections.abc import Iterator
from datetime import timedelta

import cassq
from cassq.cli.finding import Finding, Level
from cassq.model.pipe import Phase

#: So long a pipe may need care before it counts as stuck.
PATIENCE = timedelta(minutes=1)

REAP = "run `cassq reap`, and let cron run it, or keep a popper running"


def examine(store: cassq.Store) -> Iterator[Finding]:
    """Yield what is to be said of each queue."""
    names = store.queues()
    if not names:
        yield Finding("pipes", Level.OK, "there are no queues")
    for name in names:
        try:
            yield _judge(store, store.find_queue(name))
        except cassq.QueueNotFoundError:
            continue  # deleted meanwhile
        except cassq.CassqError as error:
            yield Finding("pipes", Level.FAIL, f"queue {name}: {error}")


def _judge(store: cassq.Store, queue: cassq.Queue) -> Finding:
    listing = store.storage.list_pipes(queue.name)
    settings = queue.settings
    gone_after = settings.push_age_max + settings.push_grace + settings.clock_skew_max + PATIENCE
    abandoned = overdue = 0
    for entry in listing.entries:
        state = store.storage.load_pipe(entry.pipe)
        if state is None:
            continue
        age = timedelta(milliseconds=listing.now_ms - entry.created_at_ms)
        abandoned += state.head.phase is Phase.OPEN and age > gone_after
        late_ms = (settings.clock_skew_max + PATIENCE) / timedelta(milliseconds=1)
        overdue += sum(run.is_expired(state.now_ms, round(late_ms)) for run in state.runs)
    told = f"queue {queue.name}: {len(listing.entries)} pipes"
    if abandoned:
        return Finding("pipes", Level.WARN, f"{told}, {abandoned} of dead pushers still open", REAP)
    if overdue:
        return Finding("pipes", Level.WARN, f"{told}; {overdue} runs whose lease ended long ago", REAP)
    return Finding("pipes", Level.OK, f"{told}, none is stuck")
