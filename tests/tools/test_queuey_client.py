"""`tools/queuey-client`: the tests of Queuey's own client against the service, where they can be fetched."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from _queuey_client import source
from _queuey_client.cli import KNOWN, UNAVAILABLE

TOOL = Path(__file__).resolve().parents[2] / "tools" / "queuey-client"

TESTS = 29


@pytest.mark.slow
def test_all_of_its_tests_pass_but_those_that_are_known_not_to():
    done = subprocess.run(
        [sys.executable, str(TOOL)], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{TESTS - len(KNOWN)} of {TESTS} tests of queuey-py 0.2 pass" in done.stdout
    assert all(f"{name}: {why}" in done.stdout for name, why in KNOWN.items())


def test_another_file_of_its_name_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "REQUIREMENT", source.REQUIREMENT[:-1] + "x")
    with pytest.raises(source.UnfetchedError, match="cannot be fetched"):
        source.fetch(tmp_path)
    assert not list(tmp_path.glob("queuey*"))
