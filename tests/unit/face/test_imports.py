"""What an import brings with it."""

import subprocess
import sys

import click
import pytest

from cassq.cli.main import COMMANDS, cassq_command

#: What only a cluster needs, or Spark.
CLIENTS = ("cassandra", "kazoo", "numpy", "pyspark")


@pytest.mark.parametrize("modules", ["cassq", "cassq.cli.main, cassq.cli.push, cassq.cli.pop"])
def test_an_embedded_store_needs_none_of_the_clients_of_a_cluster(modules):
    told = f"import sys, {modules}; print(*(name for name in {CLIENTS!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_list_is_where_it_says(name):
    found = cassq_command.get_command(click.Context(cassq_command), name)
    assert found is not None
    assert found.name == name
