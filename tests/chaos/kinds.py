"""The kinds of fault, and what each needs of the machine.

Owns their names and the words that people read. What must not break: names are what `--kinds` and the
tables of earlier runs have, so they stay.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scene import Scene
from strikes import (
    cut_clients,
    cut_node,
    cut_popper,
    end_session,
    fill_disk,
    freeze_clients,
    freeze_ensemble,
    freeze_leader,
    freeze_node,
    freeze_nodes,
    freeze_popper,
    freeze_pusher,
    keep_node_away,
    kill_leader,
    kill_node,
    kill_popper,
    kill_pusher,
    kill_reapers,
    lose_node,
    mark_node,
    roll_ensemble,
    roll_nodes,
    set_clocks,
)

ROOT = "root"
IPTABLES = "iptables"
COMPILER = "a C compiler"


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind.

    Attributes:
        name: as `--kinds` has it.
        words: what is done.
        strike: does it, and heals it.
        needs: what this machine must have.
        store: "ring" or "file".
        prepare: done before the load is measured.
        habits: more of the workers' options.
        hits: "servers" or "clients": mixed, one of either is done at a time.
        is_timed: whether it means anything to ask how soon the rate was back.
    """

    name: str
    words: str
    strike: Callable[[Scene], None]
    needs: frozenset[str] = frozenset()
    store: str = "ring"
    prepare: Callable[[Scene], None] = lambda _: None
    habits: tuple[str, ...] = ()
    hits: str = "clients"
    is_timed: bool = True


FAULTS = (
    Fault("popper-killed", "SIGKILL to a popper, replaced later", kill_popper),
    Fault("popper-frozen", "SIGSTOP to a popper beyond its lease, then SIGCONT", freeze_popper),
    Fault("pusher-killed", "SIGKILL to a pusher, replaced at once", kill_pusher),
    Fault("pusher-frozen", "SIGSTOP to a pusher past push_age_max + push_grace", freeze_pusher),
    Fault("reapers-killed", "SIGKILL to 12 reapers in their passes", kill_reapers, habits=("--rest", "0")),
    Fault("node-killed", "SIGKILL to a Cassandra node, started 8 s later", kill_node, hits="servers"),
    Fault("node-frozen", "SIGSTOP to a Cassandra node for 25 s", freeze_node, hits="servers"),
    Fault("nodes-frozen", "SIGSTOP to two of three Cassandra nodes for 10 s", freeze_nodes, hits="servers"),
    Fault("nodes-rolled", "rolling restart of the Cassandra nodes", roll_nodes, hits="servers"),
    Fault(
        "node-away",
        "SIGSTOP to a Cassandra node until the others forgot what they deleted from the list of pipes",
        keep_node_away,
        hits="servers",
    ),
    Fault(
        "node-lost",
        "a Cassandra node stopped for 8 s; back, another is lost with its data, and replaced 25 s later",
        lose_node,
        hits="servers",
    ),
    Fault("leader-killed", "SIGKILL to the ZooKeeper leader, started 8 s later", kill_leader, hits="servers"),
    Fault("leader-frozen", "SIGSTOP to the ZooKeeper leader for 25 s", freeze_leader, hits="servers"),
    Fault(
        "ensemble-frozen",
        "SIGSTOP to two of three ZooKeeper servers for 10 s",
        freeze_ensemble,
        hits="servers",
    ),
    Fault("ensemble-rolled", "rolling restart of the ZooKeeper servers", roll_ensemble, hits="servers"),
    Fault(
        "popper-cut",
        "a popper cut off from all servers beyond its lease",
        cut_popper,
        frozenset({ROOT, IPTABLES}),
    ),
    Fault(
        "clients-cut",
        "all clients cut off from one Cassandra node for 25 s",
        cut_clients,
        frozenset({ROOT, IPTABLES}),
    ),
    Fault(
        "node-cut",
        "a Cassandra node cut off from the others for 25 s; clients reach it",
        cut_node,
        frozenset({ROOT, IPTABLES}),
        prepare=mark_node,
        hits="servers",
    ),
    Fault(
        "clocks-apart",
        "wall clocks of clients set hours apart, then again",
        set_clocks,
        frozenset({COMPILER}),
    ),
    Fault("session-lost", "the ZooKeeper session of a popper ended by the servers", end_session),
    Fault("clients-frozen", "SIGSTOP to all clients at once beyond their leases", freeze_clients),
    Fault(
        "disk-full",
        "the disk of the embedded store full for 10 s",
        fill_disk,
        frozenset({ROOT}),
        store="file",
        habits=("--padding", "2000", "--timeout", "3"),
    ),
)

#: What the short form does.
SHORT = ("popper-killed", "node-killed", "leader-killed")
