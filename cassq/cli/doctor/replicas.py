"""What `cassq doctor` says of nodes that are, or were, away.

Owns the judgement of whether a replica may have missed what no hint will tell it. Cassandra keeps no record
of how long a node was away. What must not break: what cannot be known is asked, and never called well.
"""

from collections.abc import Iterator
from datetime import timedelta

from cassq.cli.doctor.finding import Finding, Level
from cassq.installation import ServerFacts

REPAIR = (
    "before it serves again: start it without clients, `nodetool repair --full KEYSPACE`, then let clients "
    "in; see docs/operations.md, A node that was away"
)
AFTER = f"after longer than max_hint_window repair it {REPAIR}"


def examine(server: ServerFacts, hint_window: timedelta, grace: timedelta) -> Iterator[Finding]:
    """Yield what is to be said of nodes that were away.

    Args:
        hint_window: for so long hints are kept for a node that is down.
        grace: the shortest gc_grace_seconds of a table where deletions must not be forgotten.
    """
    if len(server.nodes) < 2:
        return
    away = list(_judge_down(server, hint_window, grace))
    yield from away
    late = sorted(
        {each.address for each in server.hints if each.is_up and _age(server, each.oldest_at) > grace}
    )
    if late:
        yield Finding(
            "replicas",
            Level.WARN,
            f"hints for {', '.join(late)} are older than gc_grace_seconds, and will be thrown away",
            f"repair it {REPAIR}",
        )
    repairs = _judge_repairs(server, hint_window, grace)
    if repairs.level is not Level.OK or not (away or late):
        yield repairs


def _judge_down(server: ServerFacts, hint_window: timedelta, grace: timedelta) -> Iterator[Finding]:
    since = {each.address: each.oldest_at for each in server.hints}
    for node in server.nodes:
        if node.is_up is not False:
            continue
        if node.address not in since:
            told = f"since when {node.address} is down is not known: the node asked keeps no hint for it"
            yield Finding("replicas", Level.HINT, told, AFTER)
            continue
        away = _age(server, since[node.address])
        told = f"{node.address} has been away for {away} at least (by the oldest hint that waits for it)"
        if away > grace:
            yield Finding(
                "replicas",
                Level.WARN,
                f"{told}, longer than gc_grace_seconds: with what it has, deleted rows come back to life",
                "do not start it again as it is: replace it, or empty it first; "
                "see docs/operations.md, A node that was away",
            )
        elif away > hint_window:
            yield Finding(
                "replicas",
                Level.WARN,
                f"{told}, longer than max_hint_window ({hint_window}): no hint tells it what it missed since",
                f"repair it {REPAIR}",
            )
        else:
            yield Finding("replicas", Level.HINT, f"{told}; hints are kept for {hint_window}", AFTER)


def _judge_repairs(server: ServerFacts, hint_window: timedelta, grace: timedelta) -> Finding:
    unknown = "whether a node was away for longer than max_hint_window is written down nowhere"
    if server.repaired_at is None or not server.started_at:
        return Finding(
            "replicas", Level.HINT, f"{unknown}, and repairs may not be read", f"repair it {REPAIR}"
        )
    oldest = min(server.repaired_at.values(), default=0.0)
    overdue = [table for table, at in server.repaired_at.items() if _age(server, at) > grace]
    begun = min(server.started_at.values())
    if overdue and _age(server, begun) > grace:
        return Finding(
            "replicas",
            Level.WARN,
            f"not repaired within gc_grace_seconds ({grace}): {', '.join(sorted(overdue))}",
            "run `nodetool repair` of the keyspace on every node, more often than that",
        )
    # Only one that the others were without for longer than hints are kept can have missed anything.
    again = sorted(
        address
        for address, at in server.started_at.items()
        if at > max(oldest, begun + hint_window.total_seconds())
    )
    if again:
        return Finding(
            "replicas",
            Level.HINT,
            f"started again since the last repair: {', '.join(again)}; {unknown}",
            f"if one was, repair it {REPAIR}",
        )
    return Finding("replicas", Level.OK, "no node is known to have missed anything")


def _age(server: ServerFacts, at: float) -> timedelta:
    return timedelta(seconds=max(0, round(server.now - at)))
