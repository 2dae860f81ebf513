"""The bare statements that benches measure against still fit the schema."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from _bench.clients.ceiling import RawOpener
from _bench.clients.ceiling_sqlite import RawSqliteOpener

BODIES = [b"%d" % number for number in range(40)]


def test_the_bare_program_on_a_file_pushes_and_pops(tmp_path):
    client = RawSqliteOpener(tmp_path / "raw.db")()

    client.push(BODIES, 10)
    popped = client.pop(len(BODIES), 20)
    client.clear()
    client.close()

    assert popped == len(BODIES)


@pytest.mark.service
def test_the_bare_program_on_cassandra_pushes_and_pops(cluster_url):
    client = RawOpener(cluster_url)()

    client.push(BODIES, 10, client.opened(len(BODIES), 2))
    popped = client.pop(len(BODIES), 20)
    client.mark_each(3)
    client.clear()
    client.close()

    assert popped == len(BODIES)
