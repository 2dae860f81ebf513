"""How one Cassandra node is configured and started with plain Java.

Owns cassandra.yaml and the command line. Refuses to run anything, and to tune: what is not about
starting fast, listening on loopback only or being one of three is left as Cassandra ships it.
"""

import json
from pathlib import Path

from _services import certificates
from _services.state import Node, State

PORTS = ("cassandra", "cassandra_storage")

# The three equal parts of the ring of Murmur3 tokens.
_TOKENS = (-9223372036854775808, -3074457345618258603, 3074457345618258602)

# How the commit log reaches the disk. Periodic is as shipped: a write is acknowledged before it is there.
# With group it is acknowledged after, together with what else came within the window.
_SYNCS = {
    "periodic": {"commitlog_sync_period": "10000ms"},
    "group": {"commitlog_sync_group_window": "2ms"},
}

# What conf/jvm17-server.options opens to Cassandra; it does not start without.
_EXPORTS = (
    "java.base/java.lang.ref java.base/jdk.internal.misc "
    "java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry "
    "java.rmi/sun.rmi.server java.sql/java.sql jdk.attach/sun.tools.attach "
    "jdk.compiler/com.sun.tools.javac.file jdk.unsupported/sun.misc"
)
_OPENS = (
    "java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect "
    "java.base/java.util java.base/jdk.internal.loader java.base/jdk.internal.math "
    "java.base/jdk.internal.module java.base/jdk.internal.ref java.base/jdk.internal.reflect "
    "java.base/jdk.internal.util.jar java.base/sun.nio.ch jdk.compiler/com.sun.tools.javac "
    "jdk.management/com.sun.management.internal"
)


def configure(state: State, node: Node, directory: Path) -> None:
    """Write the configuration of one node; its data stay where they are."""
    (directory / "tmp").mkdir(parents=True, exist_ok=True)
    (directory / "cassandra.yaml").write_text(render(state, node, directory))


def render(state: State, node: Node, directory: Path) -> str:
    """Return the content of cassandra.yaml."""
    is_wiped = node.name in state.wiped
    # A node that replaces itself asks another one, and no seed takes rows from anybody.
    seed = f"127.0.0.{2 if is_wiped and node.number == 1 else 1}:{state.ports['cassandra_storage']}"
    settings: dict[str, object] = {
        "cluster_name": "cassq",
        "num_tokens": 1,
        "initial_token": str(_TOKENS[node.number - 1]),
        # Nobody has data to stream when the ring is first built.
        "auto_bootstrap": is_wiped,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "seed_provider": [
            {
                "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                "parameters": [{"seeds": seed}],
            }
        ],
        "listen_address": node.address,
        "storage_port": state.ports["cassandra_storage"],
        "rpc_address": node.address,
        "native_transport_port": node.port,
        "data_file_directories": [str(directory / "data")],
        "commitlog_directory": str(directory / "commitlog"),
        "hints_directory": str(directory / "hints"),
        "saved_caches_directory": str(directory / "saved_caches"),
        "cdc_raw_directory": str(directory / "cdc_raw"),
        "commitlog_sync": state.commitlog_sync,
        **_SYNCS[state.commitlog_sync],
        # As shipped; the class that reads this file has another default than the shipped file.
        "cas_contention_timeout": "1000ms",
        # Purging stays "legacy" with either: nobody repairs here, and it would be a one-way street.
        "paxos_variant": state.paxos,
        "authenticator": "PasswordAuthenticator" if state.auth else "AllowAllAuthenticator",
        "authorizer": "CassandraAuthorizer" if state.auth else "AllowAllAuthorizer",
        # A snapshot of every dropped and truncated table would fill the disk of whoever runs tests.
        "auto_snapshot": False,
    }
    if state.tls:
        settings["client_encryption_options"] = {
            "enabled": True,
            "optional": False,
            "keystore": str(certificates.keystore(directory.parent)),
            "keystore_password": certificates.PASSWORD,
            "store_type": "PKCS12",
        }
    # YAML is a superset of JSON, and the standard library has only the latter.
    return json.dumps(settings, indent=2) + "\n"


def command(state: State, node: Node, directory: Path, class_path: str) -> list[str]:
    """Return everything after the class path: the JVM's options and the class."""
    heap = "512m" if state.ring else "1g"
    options = [f"-Xms{heap}", f"-Xmx{heap}", "-Xss256k", "-XX:+ExitOnOutOfMemoryError"]
    options += ["-XX:+UseSerialGC"] if state.ring else ["-XX:+UseG1GC"]
    options += ["-XX:+PerfDisableSharedMem"]
    if state.low_power:
        options.append("-XX:TieredStopAtLevel=1")
    for flag, packages in (("--add-exports", _EXPORTS), ("--add-opens", _OPENS)):
        options += [f"{flag}={package}=ALL-UNNAMED" for package in packages.split()]
    agent = next(jar for jar in class_path.split(":") if Path(jar).name.startswith("jamm-"))
    properties = {
        "jdk.attach.allowAttachSelf": "true",
        "io.netty.tryReflectionSetAccessible": "true",
        "cassandra.config": (directory / "cassandra.yaml").as_uri(),
        "cassandra.storagedir": str(directory),
        # Otherwise it closes its output once it has started.
        "cassandra-foreground": "yes",
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.superuser_setup_delay_ms": "0",
        # Logins must survive the loss of one node of three.
        "cassandra.system_auth.default_rf": "3" if state.ring else "1",
        # Native libraries are unpacked here; a killed node would leave them in /tmp.
        "java.io.tmpdir": str(directory / "tmp"),
        "jna.tmpdir": str(directory / "tmp"),
    }
    if node.name in state.wiped:
        properties["cassandra.replace_address_first_boot"] = node.address
        # For so long it listens whether anybody has its address still: 30 s and 60 s as shipped.
        properties["cassandra.ring_delay_ms"] = properties["cassandra.broadcast_interval_ms"] = "10000"
    elif state.ring:
        # Twice as long it waits for the seed, then it ends (Gossiper.doShadowRound); the seed starts at the
        # same time, and takes more than the 60 s as shipped on a busy machine. Quarantine stays as shipped.
        properties["cassandra.ring_delay_ms"] = "120000"
        properties["cassandra.gossip_quarantine_delay_ms"] = "60000"
    options += [f"-D{key}={value}" for key, value in properties.items()]
    return [*options, f"-javaagent:{agent}", "org.apache.cassandra.service.CassandraDaemon"]
