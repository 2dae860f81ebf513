"""What a package index and pip are told of the package."""

import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.fixture
def described(monkeypatch):
    """What setup.py gives to setuptools."""
    given = {}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=given.update))
    path = ROOT / "setup.py"
    exec(compile(path.read_text("utf-8"), path, "exec"), {"__file__": str(path), "__name__": "__main__"})
    return given


def test_the_index_shows_the_readme_without_links_that_lead_nowhere_there(described) -> None:
    text = described["long_description"]

    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []
    assert described["long_description_content_type"] == "text/markdown"


def test_the_index_shows_every_word_and_every_example_of_the_readme(described) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    fences = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)

    assert fences.findall(described["long_description"]) == fences.findall(readme)
    words = re.compile(r"\]\([^)]*\)|[\[\]]")
    assert words.sub("", described["long_description"]) == words.sub("", readme)


def test_a_group_of_the_name_of_an_extra_has_what_the_extra_has() -> None:
    groups, extras = PYPROJECT["dependency-groups"], PYPROJECT["project"]["optional-dependencies"]

    assert {name: groups[name] for name in extras} == extras


def test_every_python_that_is_named_may_install_it() -> None:
    named = [
        tuple(map(int, each.rpartition(" ")[2].split(".")))
        for each in PYPROJECT["project"]["classifiers"]
        if re.search(r"Python :: 3\.\d+$", each)
    ]

    assert PYPROJECT["project"]["requires-python"] == f">={'.'.join(map(str, min(named)))}"
    assert sys.version_info >= min(named)


def test_a_plain_install_brings_the_drivers_of_both_services() -> None:
    names = {re.match(r"[\w-]+", each)[0] for each in PYPROJECT["project"]["dependencies"]}

    assert names >= {"cassandra-driver", "kazoo"}
