"""The folder where processes of a service leave their figures."""

import os

import pytest

from cassq.metrics.service import _lives


@pytest.mark.parametrize("error", [PermissionError, ProcessLookupError])
def test_a_process_of_another_user_is_none_of_the_service(monkeypatch, error):
    def kill(pid, signal):
        raise error(pid, signal)

    monkeypatch.setattr(os, "kill", kill)
    assert not _lives(1)
