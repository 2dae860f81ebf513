import argparse
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from _services import cassandra, choice, cli
from _services.control import Control
from _services.errors import MisuseError
from _services.state import State, load, save

PORTS = {"cassandra": 20001, "cassandra_storage": 20002, "zookeeper": 20003}
WORDS = {"low_power": None, "paxos": None, "auth": None, "tls": None, "commitlog_sync": "group"}


@pytest.mark.parametrize(
    ("sync", "given", "absent"),
    [
        ("periodic", "commitlog_sync_period", "commitlog_sync_group_window"),
        ("group", "commitlog_sync_group_window", "commitlog_sync_period"),
    ],
)
def test_the_commit_log_reaches_the_disk_as_was_asked(tmp_path, sync, given, absent):
    state = State("java", ring=False, ports=PORTS, commitlog_sync=sync)

    settings = json.loads(cassandra.render(state, state.peers("cassandra")[0], tmp_path))

    assert settings["commitlog_sync"] == sync
    assert given in settings
    assert absent not in settings


def test_how_the_commit_log_reaches_the_disk_is_kept_over_restarts(tmp_path):
    # Given servers that were made without a word about it
    state = State("java", ring=False, ports=PORTS)
    control = Control(tmp_path, state, choice.backend_named("java", tmp_path))

    # When they are started with one, and the state is read again
    cli._keep_settings(control, argparse.Namespace(**WORDS), restarted=[])
    save(tmp_path, state)

    assert load(tmp_path).commitlog_sync == "group"


def test_a_container_keeps_the_commit_log_as_it_is(tmp_path):
    state = State("docker", ring=False, ports=PORTS)
    control = Control(tmp_path, state, choice.backend_named("java", tmp_path))

    with pytest.raises(MisuseError, match="--with java"):
        cli._keep_settings(control, argparse.Namespace(**WORDS), restarted=[])
