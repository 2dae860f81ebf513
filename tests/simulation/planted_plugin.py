"""Plants a bug before pytest imports anything of the library: `pytest -p planted_plugin`.

The bug is named in CASSQ_PLANT. What must not break: a test that fails without it there proves nothing.
"""

import os

import mutants
import pytest

_MUTANT = mutants.find(os.environ["CASSQ_PLANT"])
mutants.plant(_MUTANT)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End in an error of pytest's own unless the bug was there."""
    mutants.check_planted(_MUTANT)
