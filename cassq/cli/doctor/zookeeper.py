"""What `cassq doctor` says of ZooKeeper.

Owns the judgement; `cassq.installation` reads the facts. What a server does not tell is not judged.
"""

from collections.abc import Iterator, Sequence

from cassq import installation
from cassq.cli.doctor.finding import Finding, Level
from cassq.cli.values import to_version

ZOOKEEPER_MIN = (3, 6)


def examine(target: installation.CassandraTarget) -> Iterator[Finding]:
    """Yield what is to be said of the servers that a URL names."""
    report = installation.read_zookeeper(target)
    if report is None:
        yield Finding(
            "zookeeper",
            Level.WARN,
            "the URL names no ZooKeeper: pushes work, pops do not",
            "add ?zookeeper=HOST:PORT,HOST:PORT to the URL",
        )
        return
    servers = report.servers
    silent = [f"{server.address} ({server.trouble})" for server in servers if server.trouble]
    told = f"{len(servers) - len(silent)} of {len(servers)} servers answer"
    if not report.has_session:
        reason = f"{told}: {', '.join(silent)}" if silent else f"{told}, but no session could be opened"
        yield Finding("zookeeper", Level.FAIL, reason, "poppers stop until it is back; pushes go on")
        return
    if silent:
        yield Finding("zookeeper", Level.WARN, f"{told}: {', '.join(silent)}", "bring it back")
    else:
        yield Finding("zookeeper", Level.OK, f"{told}, a session was opened")
    yield from _judge_servers(servers)


def _judge_servers(servers: Sequence[installation.ZooKeeperServer]) -> Iterator[Finding]:
    versions = sorted({server.version for server in servers if server.version})
    if versions:
        is_new = all(to_version(version) >= ZOOKEEPER_MIN for version in versions)
        yield Finding(
            "zookeeper_version",
            Level.OK if is_new else Level.WARN,
            f"ZooKeeper {', '.join(versions)}",
            "" if is_new else "cassq is tested with 3.8 and later",
        )
    if [server.mode for server in servers] == ["standalone"]:
        yield Finding(
            "zookeeper_ensemble",
            Level.HINT,
            "one server alone: while it is away, poppers stop",
            "run three, and name them all in the URL",
        )
