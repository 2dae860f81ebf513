"""Cuts the network between processes of this machine, and mends it.

Owns the rules of iptables on loopback. A process is known by the group it was started in, because all of them
have the same addresses. Refuses to touch any packet but those of such a group, or of the one server that is
named. What must not break: every rule that was made is taken away again.

    process of group G                           server
    | packet out: dropped, connection marked G   |
    |                 packet in on a marked one: dropped |
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from zlib import crc32

#: Groups of this run; another run beside it has others.
FIRST_GROUP = 1_000_000 + os.getpid() % 10_000 * 1000

Rule = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Firewall:
    """Makes and takes away rules."""

    program: str = "iptables"

    @staticmethod
    def is_root() -> bool:
        """Return whether this process may set groups, mount and filter."""
        return os.geteuid() == 0

    def missing(self) -> str:
        """Return what cutting the network needs and is not here; empty when it works."""
        if not self.is_root():
            return "root"
        if not shutil.which(self.program):
            return self.program
        trial = rules_for_group(FIRST_GROUP, ())
        try:
            with self.cut(trial):
                return ""
        except subprocess.CalledProcessError as error:
            return f"{self.program} with owner and connmark ({error.stderr.strip()[:80]})"

    @contextmanager
    def cut(self, rules: Sequence[Rule]) -> Iterator[None]:
        """Drop packets while the block runs."""
        made: list[Rule] = []
        try:
            for rule in rules:
                self._call("-I", rule)
                made.append(rule)
            yield
        finally:
            for rule in made:
                self._call("-D", rule)

    def _call(self, verb: str, rule: Rule) -> None:
        table, chain, *words = rule
        command = [self.program, "-w", "-t", table, verb, chain, "-o" if chain == "OUTPUT" else "-i", "lo"]
        subprocess.run([*command, *words], check=True, capture_output=True, text=True)


def rules_for_group(group: int, to: Sequence[str]) -> list[Rule]:
    """Return what cuts a group's own connections off, those to a place or all of them."""
    mine = ("-p", "tcp", *to, "-m", "owner", "--gid-owner", str(group))
    # A mark stays on its connection: each cut has one of its own, or the next would cut more than it says.
    mark = str(crc32(repr(mine).encode()))
    return [
        ("mangle", "OUTPUT", *mine, "-j", "CONNMARK", "--set-mark", mark),
        ("filter", "OUTPUT", *mine, "-j", "DROP"),
        ("filter", "INPUT", "-p", "tcp", "-m", "connmark", "--mark", mark, "-j", "DROP"),
    ]


def to_server(address: str, port: int) -> tuple[str, ...]:
    """Return what limits a rule to the packets to one server."""
    return ("-d", address, "--dport", str(port))


def rules_for_node(group: int, address: str, port: int) -> list[Rule]:
    """Return what cuts one Cassandra node off its peers; its clients go on reaching it."""
    return [
        *rules_for_group(group, ("--dport", str(port))),
        ("filter", "OUTPUT", "-p", "tcp", "-d", address, "--dport", str(port), "-j", "DROP"),
        ("filter", "OUTPUT", "-p", "tcp", "-s", address, "--sport", str(port), "-j", "DROP"),
    ]
