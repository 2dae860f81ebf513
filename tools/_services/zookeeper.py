"""How one ZooKeeper server is configured and started with plain Java.

Owns zoo.cfg and the command line. Refuses to run anything.
"""

from pathlib import Path

from _services.state import Node, State

PORTS = ("zookeeper", "zookeeper_peer", "zookeeper_election")


def configure(state: State, node: Node, directory: Path) -> None:
    """Write the configuration of one server; its data stay where they are."""
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "myid").write_text(f"{node.number}\n")
    (directory / "zoo.cfg").write_text(render(state, node, data))


def render(state: State, node: Node, data: Path) -> str:
    """Return the content of zoo.cfg."""
    lines = [
        # A session lasts two ticks at least: tests may ask for two seconds, or for two minutes.
        "tickTime=1000",
        "maxSessionTimeout=120000",
        "initLimit=20",
        "syncLimit=10",
        f"dataDir={data}",
        f"clientPort={node.port}",
        f"clientPortAddress={node.address}",
        "maxClientCnxns=0",
        "admin.enableServer=false",
        "4lw.commands.whitelist=*",
        "autopurge.purgeInterval=1",
    ]
    if state.ring:
        peer, election = state.ports["zookeeper_peer"], state.ports["zookeeper_election"]
        lines += [
            f"server.{member.number}={member.address}:{peer}:{election}"
            for member in state.peers(node.service)
        ]
    return "\n".join(lines) + "\n"


def command(state: State, directory: Path) -> list[str]:
    """Return everything after the class path: the JVM's options, the class and its argument."""
    options = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
    if state.low_power:
        options.append("-XX:TieredStopAtLevel=1")
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    # JMX would otherwise open a connector on every address.
    return [*options, "-Dzookeeper.jmx.log4j.disable=true", main, str(directory / "zoo.cfg")]
