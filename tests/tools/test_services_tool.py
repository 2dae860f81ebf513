import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from _services import cassandra, certificates, choice, cli, java, processes, state, zookeeper
from _services.control import Control
from _services.errors import MissingError, MisuseError, ServicesError
from _services.state import Handle, Node, State

PORTS = {name: 20000 + n for n, name in enumerate([*cassandra.PORTS, *zookeeper.PORTS])}


def single():
    return State("java", ring=False, ports=PORTS)


def ring():
    return State("java", ring=True, ports=PORTS)


class FakeBackend:
    """Runs nothing; `fails_at` names the server that cannot be started."""

    def __init__(self, fails_at="", folder=None):
        self.fails_at = fails_at
        self.folder = folder
        self.running = set()
        self.frozen = set()

    def start(self, state, node, previous):
        if node.name == self.fails_at:
            raise ServicesError(f"{node.name}: no")
        self.running.add(node.name)
        return Handle(node.name, "alive")

    def is_alive(self, handle):
        return handle.id in self.running

    def is_frozen(self, handle):
        return handle.id in self.frozen

    def end(self, handle, *, kill):
        self.running.discard(handle.id)

    def directory(self, node):
        return self.folder and self.folder / node.name


@pytest.fixture
def sleeper(tmp_path):
    program = [sys.executable, "-c", "import signal; signal.pause()"]
    handle = processes.spawn(program, tmp_path / "log", tmp_path, {})
    yield handle
    processes.end(handle, kill=True)


def test_state_is_read_as_it_was_written(tmp_path):
    written = State("java", ring=True, ports=PORTS, paxos="v2", auth=True, tls=True)
    written.handles["cassandra-2"] = Handle("17", "boot/1234")

    state.save(tmp_path, written)

    assert state.load(tmp_path) == written


def test_a_directory_where_nothing_was_started_has_no_state(tmp_path):
    assert state.load(tmp_path / "nothing") is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 2}', '{"version": 1}'])
def test_a_state_that_makes_no_sense_is_refused_with_the_way_out(tmp_path, content):
    (tmp_path / "state.json").write_text(content)

    with pytest.raises(ServicesError, match="delete the directory"):
        state.load(tmp_path)


def test_ports_are_distinct_and_out_of_the_way_of_outgoing_connections():
    names = ["a", "b", "c", "d", "e"]

    chosen = state.choose_ports(names, ["127.0.0.1"])

    assert list(chosen) == names
    assert len(set(chosen.values())) == len(names)
    assert all(1024 < port < 32768 for port in chosen.values())


def test_a_process_is_alive_until_it_was_ended(sleeper):
    assert processes.is_alive(sleeper)

    processes.end(sleeper, kill=False)

    assert not processes.is_alive(sleeper)


def test_a_process_that_only_has_the_same_pid_is_left_alone(sleeper):
    another = Handle(sleeper.id, "another boot/1")

    processes.end(another, kill=True)

    assert not processes.is_alive(another)
    assert processes.is_alive(sleeper)


def test_a_process_that_ended_and_waits_for_its_parent_is_not_alive():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    handle = Handle(str(child.pid), processes.identity(child.pid))
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but not collected

    assert not processes.is_alive(handle)
    child.wait()


def test_a_frozen_process_can_be_stopped_in_order(sleeper):
    processes.send(sleeper, signal.SIGSTOP)
    while not processes.is_frozen(sleeper):
        pass

    processes.end(sleeper, kill=False)

    assert not processes.is_alive(sleeper)


def test_the_nodes_of_a_ring_differ_in_address_and_token_only(tmp_path):
    nodes = ring().peers("cassandra")

    written = [json.loads(cassandra.render(ring(), node, tmp_path)) for node in nodes]

    differing = {key for key in written[0] if len({str(one[key]) for one in written}) > 1}
    assert differing == {"listen_address", "rpc_address", "initial_token"}
    assert [one["rpc_address"] for one in written] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]


@pytest.mark.parametrize("number", [1, 3])
def test_a_wiped_node_takes_its_rows_from_another_one_before_it_serves(tmp_path, number):
    layout = ring()
    node = layout.peers("cassandra")[number - 1]
    layout.wiped = [node.name]

    written = json.loads(cassandra.render(layout, node, tmp_path))
    options = cassandra.command(layout, node, tmp_path, "jamm-1.jar")

    assert written["auto_bootstrap"]
    assert f"{node.address}:" not in str(written["seed_provider"])
    assert f"-Dcassandra.replace_address_first_boot={node.address}" in options


def test_a_node_that_was_not_wiped_replaces_nobody(tmp_path):
    layout = ring()
    layout.wiped = ["cassandra-2"]
    node = layout.peers("cassandra")[2]

    assert not json.loads(cassandra.render(layout, node, tmp_path))["auto_bootstrap"]
    assert "replace" not in str(cassandra.command(layout, node, tmp_path, "jamm-1.jar"))


def test_a_wiped_node_has_ended_and_lost_its_data_and_that_is_remembered(tmp_path):
    backend = FakeBackend(fails_at="cassandra-2", folder=tmp_path)
    layout = ring()
    node = layout.peers("cassandra")[1]
    layout.handles[node.name] = Handle(node.name, "alive")
    backend.running.add(node.name)
    (tmp_path / node.name / "data").mkdir(parents=True)
    control = Control(tmp_path, layout, backend)

    control.wipe([node])

    assert not backend.running
    assert not (tmp_path / node.name).exists()
    with pytest.raises(ServicesError):
        control.start([node], seconds=1, progress=print)
    assert state.load(tmp_path).wiped == [node.name]


@pytest.mark.parametrize(
    ("layout", "service", "count", "folder"),
    [
        (single(), "cassandra", 1, Path()),
        (ring(), "zookeeper", 1, Path()),
        (ring(), "cassandra", 2, Path()),
        (ring(), "cassandra", 1, None),
    ],
)
def test_nothing_is_wiped_that_nobody_else_has(tmp_path, layout, service, count, folder):
    control = Control(tmp_path, layout, FakeBackend(folder=folder))

    with pytest.raises(MisuseError):
        control.wipe(layout.peers(service)[:count])


def test_zookeeper_stands_alone_unless_it_is_a_ring(tmp_path):
    [alone] = single().peers("zookeeper")
    third = ring().peers("zookeeper")[2]

    assert "server." not in zookeeper.render(single(), alone, tmp_path)
    written = zookeeper.render(ring(), third, tmp_path)
    assert "clientPortAddress=127.0.0.3\n" in written
    assert written.count("server.") == 3


def test_a_start_that_fails_ends_what_it_started_and_nothing_else(tmp_path):
    backend = FakeBackend(fails_at="cassandra-3")
    layout = ring()
    control = Control(tmp_path, layout, backend)
    layout.handles["zookeeper-1"] = backend.start(layout, layout.nodes[0], None)

    with pytest.raises(ServicesError, match="cassandra-3"):
        control.start(layout.nodes, seconds=1, progress=print)

    assert backend.running == {"zookeeper-1"}


def test_what_was_started_is_remembered_before_the_next_is_started(tmp_path):
    backend = FakeBackend(fails_at="cassandra-1")
    control = Control(tmp_path, single(), backend)

    with pytest.raises(ServicesError):
        control.start(control.state.nodes, seconds=1, progress=print)

    assert list(state.load(tmp_path).handles) == ["zookeeper-1"]


def test_a_frozen_server_is_not_waited_for(tmp_path):
    backend = FakeBackend()
    control = Control(tmp_path, single(), backend)
    node = control.state.nodes[0]
    control.state.handles[node.name] = backend.start(control.state, node, None)
    backend.frozen.add(node.name)

    with pytest.raises(MisuseError, match="thaw"):
        control.start([node], seconds=1, progress=print)


def test_clients_are_given_the_nodes_that_are_down_as_well(tmp_path):
    backend = FakeBackend()
    control = Control(tmp_path, ring(), backend)
    second = Node("cassandra", 2, "127.0.0.2", PORTS["cassandra"])
    control.state.handles[second.name] = backend.start(control.state, second, None)

    assert control.addresses("zookeeper") == ""
    assert control.addresses("cassandra") == "127.0.0.1:20000,127.0.0.2:20000,127.0.0.3:20000"


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_clients_are_given_the_authority_of_encrypted_servers_and_of_no_others(
    tmp_path, capsys, is_encrypted
):
    backend = FakeBackend()
    layout = State("java", ring=False, ports=PORTS, tls=is_encrypted)
    [node] = layout.peers("cassandra")
    layout.handles[node.name] = backend.start(layout, node, None)

    cli._env(Control(tmp_path, layout, backend), argparse.Namespace(json=False))

    authority = f"export CASSQ_TEST_CASSANDRA_CA={certificates.authority(tmp_path)}\n"
    assert (authority in capsys.readouterr().out) is is_encrypted


def test_a_node_that_speaks_tls_speaks_nothing_else(tmp_path):
    layout = State("java", ring=False, ports=PORTS, tls=True)
    [node] = layout.peers("cassandra")

    written = json.loads(cassandra.render(layout, node, tmp_path / node.name))["client_encryption_options"]

    assert (written["enabled"], written["optional"]) == (True, False)
    assert written["keystore"] == str(certificates.keystore(tmp_path))


def test_the_certificate_is_for_every_address_that_servers_listen_on(tmp_path):
    [names] = [word for word in certificates.make_arguments(tmp_path / "store") if word.startswith("san=")]

    assert names == "san=dns:localhost,ip:127.0.0.1,ip:127.0.0.2,ip:127.0.0.3"


def keytool(directory, program):
    """Put a keytool beside a Java that is not there, and return the latter."""
    tool = directory / "keytool"
    tool.write_text(f"#!/bin/sh\n{program}\n")
    tool.chmod(0o755)
    return directory / "java"


def test_a_certificate_is_made_once_and_kept_until_it_is_removed(tmp_path):
    # Notes what it is asked for; the PEM file is the last word of the second time.
    java_there = keytool(
        tmp_path, 'echo "$1" >> "$0.log"; for last; do :; done; [ "$1" = -genkeypair ] || echo x > "$last"'
    )
    services = tmp_path / "services"

    for _ in range(2):
        certificates.make(java_there, services)

    assert (tmp_path / "keytool.log").read_text().split() == ["-genkeypair", "-exportcert"]
    assert certificates.authority(services).exists()
    certificates.remove(services)
    assert not list(services.iterdir())


def test_a_keytool_that_fails_is_quoted_and_leaves_no_certificate(tmp_path):
    java_there = keytool(tmp_path, "echo 'keytool error: no such curve'; exit 1")

    with pytest.raises(ServicesError, match="no such curve"):
        certificates.make(java_there, tmp_path)

    assert not certificates.authority(tmp_path).exists()


def test_a_machine_without_keytool_is_told_so(tmp_path):
    with pytest.raises(ServicesError, match="keytool cannot be run"):
        certificates.make(tmp_path / "java", tmp_path)


def test_tls_is_refused_to_docker(tmp_path):
    with pytest.raises(MisuseError, match="--with java"):
        choice.choose_backend("docker", tmp_path, ring=False, tls=True)


def test_a_ring_is_refused_to_docker(tmp_path):
    with pytest.raises(MisuseError, match="--with java"):
        choice.choose_backend("docker", tmp_path, ring=True)


def test_a_machine_without_the_right_java_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(java, "_MAJOR", "99")

    with pytest.raises(MissingError, match="apt-get install") as caught:
        java.find_java()

    assert caught.value.exit_code == 69
