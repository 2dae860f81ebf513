"""What `cassq doctor` says of a Cassandra cluster.

Owns the judgement; `cassq.installation` reads the facts. What a server does not tell is not judged.
"""

from collections.abc import Iterator
from datetime import timedelta

import click

import cassq
from cassq import installation
from cassq.cli.doctor import replicas as doctor_replicas
from cassq.cli.doctor.finding import Finding, Level
from cassq.cli.values import to_bytes, to_duration, to_version
from cassq.installation import ServerFacts
from cassq.limits import BODY_BYTES_CEILING, MIB

CASSANDRA_MIN = (5, 0)

#: The defaults of Cassandra 5, where a server tells that a setting is not set.
MUTATION_BYTES = 16 * MIB

#: An entry of this table that a late hint brings back finds no head behind it, and is deleted again.
HEALED_TABLES = {"pipes"}

#: Beyond this somebody's clock is wrong; no promise of cassq's rests on it.
CLOCK_OFFSET_MAX_MS = 1000.0


def examine(target: installation.CassandraTarget, *, is_watching: bool) -> Iterator[Finding]:
    """Yield what is to be said of a cluster.

    Args:
        is_watching: the user is to read only.
    """
    try:
        report = installation.read_cassandra(target)
    except cassq.AccessDeniedError as error:
        yield Finding("cassandra", Level.FAIL, str(error), "see docs/operations.md, Permissions")
    except cassq.CassqError as error:
        yield Finding(
            "cassandra", Level.FAIL, str(error), "is it up, and are address, password and TLS right?"
        )
    else:
        server = report.server
        yield _judge_nodes(server)
        yield _judge_version(server)
        yield _judge_schema(report)
        yield from _judge_permissions(server, target.keyspace, is_watching=is_watching)
        if server.replication:
            yield from _judge_replication(server, target.datacenter)
        yield from _judge_hints(server)
        yield from _judge_paxos(server)
        yield from _judge_limits(server)
        yield _judge_clock(server)


def _judge_nodes(server: ServerFacts) -> Finding:
    down = [node.address for node in server.nodes if node.is_up is False]
    if not down:
        return Finding("cassandra", Level.OK, f"{len(server.nodes)} nodes, none is known to be down")
    return Finding(
        "cassandra",
        Level.WARN,
        f"{len(down)} of {len(server.nodes)} nodes down: {', '.join(down)}",
        "bring it back; whether it has to be repaired or replaced first is told under replicas",
    )


def _judge_version(server: ServerFacts) -> Finding:
    versions = sorted({node.release_version for node in server.nodes if node.release_version})
    told = f"Cassandra {', '.join(versions) or 'of an unknown version'}"
    if all(to_version(version) >= CASSANDRA_MIN for version in versions):
        return Finding("version", Level.OK, told)
    return Finding("version", Level.FAIL, told, "cassq is built for, and tested with, Cassandra 5.0")


def _judge_schema(report: installation.CassandraReport) -> Finding:
    if report.trouble:
        is_denied = "schema_version" in report.server.unreadable
        way_out = "grant what permissions names" if is_denied else "bring the nodes back first"
        return Finding("schema", Level.FAIL, f"cannot be read: {report.trouble}", way_out)
    if not report.differences:
        return Finding("schema", Level.OK, f"version {report.version}, as this cassq needs it")
    way_out = "run `cassq schema apply --url …`: it mends this, or prints the statements that do"
    if (report.version or 0) > report.version_needed:
        way_out = "install a newer cassq"
    return Finding("schema", Level.FAIL, "; ".join(report.differences), way_out)


def _judge_permissions(server: ServerFacts, keyspace: str, *, is_watching: bool) -> Iterator[Finding]:
    told, grants = [], []
    if server.unreadable:
        told.append(f"this user may not read {', '.join(server.unreadable)}: nothing works")
        grants.append(f"GRANT SELECT ON KEYSPACE {keyspace} TO it")
    if server.unwritable:
        told.append(
            f"this user may not write {', '.join(server.unwritable)}: pushes, pops and commits are refused"
        )
        if not is_watching:
            grants.append(
                f"GRANT MODIFY ON KEYSPACE {keyspace} TO it (or doctor --read-only for one that only watches)"
            )
    yield Finding(
        "permissions",
        Level.FAIL if grants else Level.OK,
        "; ".join(told) or "this user may read and write",
        "; ".join(grants),
    )
    if server.closed:
        yield Finding(
            "permissions",
            Level.HINT,
            f"{' and '.join(server.closed)} may not be read: settings, hints or repairs were not looked at",
            "; ".join(f"GRANT SELECT ON KEYSPACE {name} TO it" for name in server.closed),
        )


def _judge_replication(server: ServerFacts, datacenter: str | None) -> Iterator[Finding]:
    factors = {
        name: int(str(value).partition("/")[0])
        for name, value in server.replication.items()
        if name != "class"
    }
    is_local = datacenter in factors
    factor = factors[datacenter] if is_local and datacenter else sum(factors.values())
    where = f" in {datacenter}" if is_local else ""
    level_name = "LOCAL_QUORUM" if datacenter else "QUORUM"
    quorum = factor // 2 + 1
    told = f"replication factor {factor}{where}, {level_name} is {quorum}"
    nodes = [node for node in server.nodes if not is_local or node.datacenter == datacenter]
    down = sum(node.is_up is False for node in nodes)
    up = len(nodes) - down
    way_out = "replicate to 3 nodes: ALTER KEYSPACE … WITH replication = …, then `nodetool repair`"
    if up < quorum:
        yield Finding(
            "replication",
            Level.FAIL,
            f"{told}, and {up} of {len(nodes)} nodes are up: pushes, pops, commits and figures do not work "
            "until more are back; nothing that is stored is lost by that",
            f"bring {quorum - up} back" if down else "use fewer replicas, or add nodes",
        )
    elif down > factor - quorum:
        yield Finding(
            "replication",
            Level.FAIL,
            f"{told}, and {down} of {len(nodes)} nodes are down: queues and pipes that have "
            f"{factor - quorum + 1} replicas there can be neither written nor read; the others work",
            f"bring {down - factor + quorum} back",
        )
    elif factor == 1:
        yield Finding(
            "replication",
            Level.WARN,
            f"{told}: one node down stops the queue, one lost disk loses it",
            way_out,
        )
    elif factor == 2:
        yield Finding("replication", Level.WARN, f"{told}: no node may be down, as with one replica", way_out)
    else:
        yield Finding("replication", Level.OK, told)
    if factor == 1 and server.settings.get("commitlog_sync") == "periodic":
        yield Finding(
            "commitlog",
            Level.WARN,
            "one replica and commitlog_sync: periodic: a node that is killed loses what it acknowledged in "
            "its last seconds (commitlog_sync_period)",
            "set commitlog_sync: group or batch in cassandra.yaml, or replicate to 3 nodes",
        )
    if datacenter and not is_local:
        yield Finding(
            "datacenter",
            Level.FAIL,
            f"the keyspace has no replicas in datacenter {datacenter!r}; it has {', '.join(sorted(factors))}",
            "name one of those as datacenter= in the URL",
        )
    elif not datacenter and len(factors) > 1:
        yield Finding(
            "datacenter",
            Level.HINT,
            "every request waits for a quorum over all datacenters",
            "name the near one as datacenter= in the URL, the same one in every process",
        )


def _judge_hints(server: ServerFacts) -> Iterator[Finding]:
    window = _duration(server.settings.get("max_hint_window")) or timedelta(hours=3)
    graces = {table: grace_s for table, grace_s in server.gc_grace_s.items() if table not in HEALED_TABLES}
    short = [table for table, grace_s in graces.items() if timedelta(seconds=grace_s) <= window]
    told = f"gc_grace_seconds {min(graces.values(), default=0)}, hint window {window}"
    if short:
        yield Finding(
            "gc_grace",
            Level.FAIL,
            f"{told}: too short for {', '.join(sorted(short))}; a late hint may bring deleted rows back",
            "ALTER TABLE … WITH gc_grace_seconds = 86400, or a shorter max_hint_window",
        )
    elif graces:
        yield Finding("gc_grace", Level.OK, told)
    grace = timedelta(seconds=min(graces.values(), default=0))
    yield from doctor_replicas.examine(server, window, grace)


def _judge_paxos(server: ServerFacts) -> Iterator[Finding]:
    if "paxos_variant" not in server.settings:
        return
    variant = str(server.settings["paxos_variant"] or "v1")
    if variant.startswith("v1"):
        yield Finding(
            "paxos",
            Level.HINT,
            f"paxos_variant is {variant}, Cassandra's default",
            "v2 halves the round trips of every take: set paxos_variant: v2 in cassandra.yaml on all nodes, "
            "as its upgrade notes tell",
        )
    else:
        yield Finding("paxos", Level.OK, f"paxos_variant is {variant}")


def _judge_limits(server: ServerFacts) -> Iterator[Finding]:
    # Rows are written with timestamp 1, and pipes deleted with one of the far future: section 3.
    for name in ("minimum_timestamp_fail_threshold", "maximum_timestamp_fail_threshold"):
        value = server.settings.get(name)
        if value not in {None, "", "null"}:
            yield Finding(
                "timestamps", Level.FAIL, f"{name} is {value}: cassq's writes are refused", f"unset {name}"
            )
    mutation = _bytes(server.settings.get("max_mutation_size"))
    if mutation is not None and mutation < BODY_BYTES_CEILING + MIB:
        yield Finding(
            "mutation_size",
            Level.WARN,
            f"max_mutation_size is {mutation / MIB:g} MiB: bodies near body_bytes_max's ceiling are refused",
            f"raise it (default {MUTATION_BYTES // MIB} MiB), or keep body_bytes_max well below it",
        )


def _judge_clock(server: ServerFacts) -> Finding:
    offset_ms, precision_ms = server.clock_offset_ms, server.clock_precision_ms
    told = f"the database is {offset_ms:+.0f} ms (± {precision_ms:.0f} ms) from this machine"
    if abs(offset_ms) <= CLOCK_OFFSET_MAX_MS + precision_ms:
        return Finding("clock", Level.OK, told)
    return Finding(
        "clock",
        Level.HINT,
        f"{told}; no promise rests on it, but times in messages look odd",
        "run chrony or ntpd on both",
    )


def _duration(text: str | None) -> timedelta | None:
    try:
        return to_duration(text) if text else None
    except click.BadParameter:
        return None


def _bytes(text: str | None) -> int | None:
    try:
        return to_bytes(text) if text else None
    except click.BadParameter:
        return None
