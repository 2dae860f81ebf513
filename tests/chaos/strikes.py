"""What befalls a crew and its servers, strike by strike.

Owns what is done, in which order, and for how long. Refuses to judge. What must not break: when a strike
returns, everything that it stopped, froze or cut goes on again.
"""

import os
import signal

from crew import wait_until
from firewall import FIRST_GROUP, rules_for_group, rules_for_node, to_server
from ring import CASSANDRA, REPLICAS, ZOOKEEPER
from scene import Scene

from cassq.verification.ledger import Kind

REAPERS_KILLED = 12
OUTAGE_S = 8.0
SILENCE_S = 10.0
#: Longer than drivers take to notice by themselves that a node is silent.
PAST_HEARTBEAT_S = 25.0
REST_S = 3.0
#: An hour of the list of pipes, after which nobody knows of a deletion there any more.
FORGETFUL_S = 3

#: A popper's clock, a pusher's, and so on: hours ahead or behind.
HOURS = (5, -7, 26, -1, 3, -48, 9, -3, 12)

#: The groups of Cassandra nodes that are cut off.
_NODE_GROUP = FIRST_GROUP + 990


def kill_popper(scene: Scene) -> None:
    victim = scene.pick_holding()
    scene.blow(f"{victim.who} is killed")
    scene.crew.kill(victim)
    scene.wait(scene.load.past_lease)
    scene.replace("popper")


def freeze_popper(scene: Scene) -> None:
    victim = scene.pick_holding()
    scene.blow(f"{victim.who} is frozen")
    scene.freeze([victim])
    scene.wait(scene.load.past_lease)
    scene.blow(f"{victim.who} goes on")
    scene.thaw([victim])


def kill_pusher(scene: Scene) -> None:
    victim = scene.pick("pusher")
    with scene.lull(f"{victim.who} is killed"):
        scene.crew.kill(victim)
        scene.replace("pusher")
    scene.wait(scene.load.past_push)


def freeze_pusher(scene: Scene) -> None:
    victim = scene.pick("pusher")
    with scene.lull(f"{victim.who} is frozen"):
        scene.freeze([victim])
        scene.wait(scene.load.past_push)
        scene.thaw([victim])


def kill_reapers(scene: Scene) -> None:
    for _ in range(REAPERS_KILLED):
        victim = scene.pick("reaper")
        scene.replace("reaper")
        scene.crew.await_lines(victim, Kind.REAPED, 1)
        scene.wait(scene.dice.random() * 0.3)
        scene.blow(f"{victim.who} is killed")
        scene.crew.kill(victim)


def _first(scene: Scene) -> int:
    """Return the node that hurts most: all clients ask it first for what they need of the queue."""
    return scene.servers.first_node(scene.crew.queue)


def kill_node(scene: Scene) -> None:
    _kill_server(scene, CASSANDRA, _first(scene))


def kill_leader(scene: Scene) -> None:
    _kill_server(scene, ZOOKEEPER, scene.servers.leader())


def _kill_server(scene: Scene, service: str, number: int) -> None:
    scene.blow(f"{service} {number} is killed")
    scene.servers.stop(service, number, kill=True)
    scene.wait(OUTAGE_S)
    scene.blow(f"{service} {number} starts")
    scene.servers.go_on(service, number)


def keep_node_away(scene: Scene) -> None:
    """A node that was away while others forgot deletions has entries that nobody else has."""
    number, queue = _first(scene), scene.crew.queue

    def is_all_gone() -> bool:
        scene.wait(1.0)
        return not known & scene.servers.listed(queue)

    with scene.servers.forgetting(FORGETFUL_S):
        known = scene.servers.listed(queue)
        scene.blow(f"cassandra {number} is frozen")
        scene.servers.freeze(CASSANDRA, number)
        wait_until(is_all_gone, "the pipes that it knows are gone")
        scene.wait(FORGETFUL_S + REST_S)
        scene.blow(f"cassandra {number} goes on")
        scene.servers.thaw(CASSANDRA, number)
        # Until everybody has read all of the list, which is once in the life of a pipe.
        scene.wait(scene.load.past_push)


def lose_node(scene: Scene) -> None:
    """What was pushed while a node was down is on two; one of them is lost before the third hears of it."""
    lost = _first(scene)
    other = lost % REPLICAS + 1
    scene.blow(f"cassandra {other} is stopped")
    scene.servers.stop(CASSANDRA, other, kill=False)
    scene.wait(OUTAGE_S)
    scene.blow(f"cassandra {other} starts")
    scene.servers.go_on(CASSANDRA, other)
    scene.blow(f"cassandra {lost} is lost")
    scene.servers.wipe(lost)
    scene.wait(PAST_HEARTBEAT_S)
    scene.servers.repair()
    scene.blow(f"cassandra {lost} is replaced")
    scene.servers.go_on(CASSANDRA, lost)


def freeze_node(scene: Scene) -> None:
    _freeze_server(scene, CASSANDRA, _first(scene), PAST_HEARTBEAT_S)


def freeze_leader(scene: Scene) -> None:
    # Longer than the others go on to believe in a silent leader: syncLimit ticks, 10 s in tools/services.
    _freeze_server(scene, ZOOKEEPER, scene.servers.leader(), PAST_HEARTBEAT_S)


def _freeze_server(scene: Scene, service: str, number: int, seconds: float) -> None:
    scene.blow(f"{service} {number} is frozen")
    scene.servers.freeze(service, number)
    scene.wait(seconds)
    scene.blow(f"{service} {number} goes on")
    scene.servers.thaw(service, number)


def freeze_nodes(scene: Scene) -> None:
    _freeze_majority(scene, CASSANDRA)


def freeze_ensemble(scene: Scene) -> None:
    _freeze_majority(scene, ZOOKEEPER)


def _freeze_majority(scene: Scene, service: str) -> None:
    with scene.lull(f"two of {service} are frozen"):
        for number in (1, 2):
            scene.servers.freeze(service, number)
        scene.wait(SILENCE_S)
        for number in (1, 2):
            scene.servers.thaw(service, number)


def roll_nodes(scene: Scene) -> None:
    _roll(scene, CASSANDRA)


def roll_ensemble(scene: Scene) -> None:
    _roll(scene, ZOOKEEPER)


def _roll(scene: Scene, service: str) -> None:
    for number in (1, 2, 3):
        scene.blow(f"{service} {number} is stopped")
        scene.servers.stop(service, number, kill=False)
        scene.blow(f"{service} {number} starts")
        scene.servers.go_on(service, number)
        scene.wait(REST_S)


def cut_popper(scene: Scene) -> None:
    victim = scene.pick_holding()
    assert victim.seat.group is not None
    with scene.firewall.cut(rules_for_group(victim.seat.group, ())):
        scene.blow(f"{victim.who} is cut off")
        scene.wait(scene.load.past_lease)
        scene.blow(f"{victim.who} is connected")


def cut_clients(scene: Scene) -> None:
    place = scene.servers.place(CASSANDRA, _first(scene))
    there = to_server(place.address, place.port)
    groups = [member.seat.group for member in scene.crew.members if member.seat.group is not None]
    rules = [rule for group in groups for rule in rules_for_group(group, there)]
    scene.blow(f"all clients are cut off from cassandra {place.number}")
    with scene.firewall.cut(rules):
        scene.wait(PAST_HEARTBEAT_S)
        scene.blow("all are connected")


def mark_node(scene: Scene) -> None:
    number = _first(scene)
    scene.servers.regroup(number, _NODE_GROUP + number)


def cut_node(scene: Scene) -> None:
    number = _first(scene)
    address = scene.servers.place(CASSANDRA, number).address
    rules = rules_for_node(_NODE_GROUP + number, address, scene.servers.storage_port())
    scene.blow(f"cassandra {number} is cut off from the others")
    with scene.firewall.cut(rules):
        scene.wait(PAST_HEARTBEAT_S)
        scene.blow(f"cassandra {number} is connected")


def set_clocks(scene: Scene) -> None:
    for sign in (1, -1):
        scene.blow("clocks are set")
        for member, hours in zip(scene.crew.members, HOURS, strict=False):
            scene.clocks.set(member.who, sign * hours * 3600)
        scene.wait(SILENCE_S)


def end_session(scene: Scene) -> None:
    victim = scene.pick_holding()
    scene.blow(f"the session of {victim.who} is ended")
    os.kill(victim.process.pid, signal.SIGUSR1)
    scene.wait(scene.load.past_lease)


def freeze_clients(scene: Scene) -> None:
    members = list(scene.crew.members)
    with scene.lull("all clients are frozen"):
        scene.freeze(members)
        scene.wait(scene.load.past_lease)
        scene.thaw(members)


def fill_disk(scene: Scene) -> None:
    assert scene.disk is not None
    ballast = scene.disk / "ballast"
    poppers = scene.crew.of("popper")
    with scene.lull("the disk is full"):
        # A file whose messages come and go at one rate needs no more room: let them pile up.
        scene.freeze(poppers)
        with ballast.open("wb", buffering=0) as file:
            _write_until_full(file.fileno())
            scene.wait(SILENCE_S / 2)
            scene.thaw(poppers)
            scene.wait(SILENCE_S / 2)
        ballast.unlink()


def _write_until_full(file: int) -> None:
    for size in (1 << 20, 1 << 12, 1):
        try:
            while os.write(file, bytes(size)):
                pass
        except OSError:
            continue
