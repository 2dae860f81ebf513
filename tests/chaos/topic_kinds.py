"""The kinds of fault that befall a topic, besides those of the servers, which are a queue's.

Owns what is done to publishers, readers, members, relays and poppers. What must not break: as in `kinds`,
names stay; as in `strikes`, whatever was stopped or cut goes on when a strike returns.
"""

import os
import signal
from collections.abc import Callable

from crew import Member
from firewall import rules_for_group
from kinds import FAULTS, IPTABLES, ROOT, Fault
from scene import Scene

from cassq.verification.ledger import Kind

#: How often one strike of a kind falls.
ROUNDS = 3

#: For how long a worker stands still, or is cut off, at the least and at the most.
PAUSE_S = 0.5, 8.0
REST_S = 1.0

#: How many of those that are struck have just begun something.
BUSY = 0.7


#: What tells that somebody is in the middle of something.
_BUSY = {
    "publisher": Kind.ATTEMPTED,
    "reader": Kind.DELIVERED,
    "consumer": Kind.DELIVERED,
    "popper": Kind.DELIVERED,
}


def _pick(scene: Scene, role: str) -> Member:
    """Choose a worker, at times one that has just begun something."""
    scene.wait(scene.dice.random() * REST_S)
    victim = scene.pick(role)
    if role in _BUSY and scene.dice.random() < BUSY:
        scene.crew.await_lines(victim, _BUSY[role], victim.count(_BUSY[role]) + 1)
    return victim


def kill(role: str) -> Callable[[Scene], None]:
    """Return what kills some of a role, one after the other; each is replaced at once."""

    def strike(scene: Scene) -> None:
        for _ in range(ROUNDS):
            victim = _pick(scene, role)
            scene.blow(f"{victim.who} is killed")
            scene.crew.kill(victim)
            scene.replace(role)

    return strike


def freeze(role: str) -> Callable[[Scene], None]:
    """Return what freezes some of a role, one after the other."""

    def strike(scene: Scene) -> None:
        for _ in range(ROUNDS):
            victim = _pick(scene, role)
            scene.blow(f"{victim.who} is frozen")
            scene.freeze([victim])
            scene.wait(scene.dice.uniform(*PAUSE_S))
            scene.blow(f"{victim.who} goes on")
            scene.thaw([victim])

    return strike


def tell(role: str, number: signal.Signals, what: str) -> Callable[[Scene], None]:
    """Return what has some of a role lose something by themselves, one after the other."""

    def strike(scene: Scene) -> None:
        for _ in range(ROUNDS):
            victim = _pick(scene, role)
            scene.blow(f"{victim.who}: {what}")
            os.kill(victim.process.pid, number)
            scene.wait(scene.dice.uniform(*PAUSE_S) / 2)

    return strike


def cut(role: str) -> Callable[[Scene], None]:
    """Return what cuts one of a role off from all servers for a while."""

    def strike(scene: Scene) -> None:
        victim = scene.pick(role)
        assert victim.seat.group is not None
        with scene.firewall.cut(rules_for_group(victim.seat.group, ())):
            scene.blow(f"{victim.who} is cut off")
            scene.wait(scene.load.past_lease)
            scene.blow(f"{victim.who} is connected")

    return strike


_FROZEN = "SIGSTOP to {} for 0.5 to 8 s each"
_KILLED = "SIGKILL to {}, replaced at once"
_BROKEN = "connections of {} broken, with the answers under way"
_ENDED = "ZooKeeper sessions of {} ended by the servers"
_CUT = frozenset({ROOT, IPTABLES})

_OF_CLIENTS = (
    Fault("publishers-killed", _KILLED.format("publishers"), kill("publisher")),
    Fault("publishers-frozen", _FROZEN.format("publishers"), freeze("publisher")),
    Fault(
        "publishers-broken",
        _BROKEN.format("publishers"),
        tell("publisher", signal.SIGUSR2, "its connections end"),
    ),
    Fault("publisher-cut", "a publisher cut off from all servers", cut("publisher"), _CUT),
    Fault("readers-killed", _KILLED.format("readers"), kill("reader")),
    Fault("readers-frozen", _FROZEN.format("readers"), freeze("reader")),
    Fault("members-killed", _KILLED.format("members of groups"), kill("consumer")),
    Fault("members-frozen", _FROZEN.format("members of groups"), freeze("consumer")),
    Fault(
        "members-expelled",
        _ENDED.format("members of groups"),
        tell("consumer", signal.SIGUSR1, "its session ends"),
    ),
    Fault("relays-killed", _KILLED.format("relays"), kill("relay")),
    Fault("relays-frozen", _FROZEN.format("relays"), freeze("relay")),
    Fault("relays-broken", _BROKEN.format("relays"), tell("relay", signal.SIGUSR2, "its connections end")),
    Fault("relays-expelled", _ENDED.format("relays"), tell("relay", signal.SIGUSR1, "its session ends")),
    Fault("poppers-killed", _KILLED.format("poppers of subscribed queues"), kill("popper")),
    Fault("reaper-killed", _KILLED.format("the reaper"), kill("reaper")),
)

#: Those of the servers that a topic is tried with: what a node forgets of lists of pipes is a queue's matter.
_OF_SERVERS = (
    "node-killed",
    "node-frozen",
    "nodes-frozen",
    "nodes-rolled",
    "leader-killed",
    "leader-frozen",
    "ensemble-frozen",
    "clients-cut",
    "node-cut",
    "clients-frozen",
)

TOPIC_FAULTS = (*_OF_CLIENTS, *(each for each in FAULTS if each.name in _OF_SERVERS))

#: What the short form mixes, and for how many minutes.
TOPIC_SHORT = (*(each.name for each in _OF_CLIENTS), "node-killed", "leader-killed", "ensemble-frozen")
TOPIC_SHORT_MINUTES = 1.25
