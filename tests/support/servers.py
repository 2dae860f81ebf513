"""A Cassandra and a ZooKeeper of a test's own, to do to them what nobody may do to the shared ones."""

import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from support.patience import patiently

from cassq.storage.cassandra import Address, CassandraSchema, open_session

TOOL = Path(__file__).parents[2] / "tools" / "services"


class Servers:
    """One node of each, from `start` on until they are removed."""

    def __init__(self, folder):
        self._folder = folder
        started = self.order("start")
        exported = dict(
            line.removeprefix("export ").split("=", 1)
            for line in started.splitlines()
            if line.startswith("export ")
        )
        self.cassandra = exported["CASSQ_TEST_CASSANDRA"]
        self.zookeeper = exported["CASSQ_TEST_ZOOKEEPER"]

    def order(self, command, *options):
        done = subprocess.run(
            [sys.executable, str(TOOL), command, "--dir", str(self._folder), *options],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode != 0:
            pytest.fail(f"tools/services {command} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def make_keyspace(self):
        host, _, port = self.cassandra.partition(",")[0].rpartition(":")
        keyspace = f"cassq_servers_{secrets.token_hex(4)}"
        session = patiently(lambda: open_session(Address([(host, int(port))]), keyspace))
        replication = {"class": "SimpleStrategy", "replication_factor": 1}
        patiently(lambda: CassandraSchema(session).apply(replication))
        session.close()
        return session.keyspace
