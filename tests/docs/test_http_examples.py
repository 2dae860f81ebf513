"""The examples in other languages do what they say, against a real `cassq serve`."""

import os
import shutil
import subprocess
import sys

import pytest
from pages import ROOT, Example, examples

sys.path.append(str(ROOT / "tests" / "integration"))

from support.serving import Serving, keys_of

LANGUAGES = {"sh": "sh", "javascript": "node", "go": "go"}

EXAMPLES = [each for each in examples() if each.mark == "http"]


@pytest.fixture
def serving(tmp_path):
    url = f"sqlite:///{tmp_path}/orders.db"
    (key,) = keys_of(url, "shop")
    made = Serving(url)
    made.shop = key
    yield made
    made.end()


def command_of(example: Example, folder) -> list[str]:
    """Write an example as a file of its language; return what runs it."""
    names = {"sh": "example.sh", "javascript": "example.mjs", "go": "main.go"}
    file = folder / names[example.language]
    file.write_text(example.code)
    return {
        "sh": ["sh", "-e", str(file)],
        "javascript": ["node", str(file)],
        "go": ["go", "run", str(file)],
    }[example.language]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.language)
def test_an_example_in_another_language_does_what_it_says(example, serving, tmp_path) -> None:
    program = LANGUAGES[example.language]
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} on PATH")
    own = {"CASSQ_HTTP": serving.base, "CASSQ_KEY": serving.shop, "GOFLAGS": "-mod=mod", "GOPROXY": "off"}

    ended = subprocess.run(
        command_of(example, tmp_path),
        cwd=tmp_path,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert ended.returncode == 0, f"\n{ended.stdout}{ended.stderr}"


def test_each_language_has_an_example() -> None:
    assert {each.language for each in EXAMPLES} == set(LANGUAGES)
