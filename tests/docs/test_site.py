"""What the site adds to the pages: links that are turned, docstrings in the form that its parser knows."""

import importlib.util
import re
import sys
from types import ModuleType

import pytest
from pages import ROOT

import cassq
from cassq.spark import pipeline

API = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")


@pytest.fixture
def load(monkeypatch):
    """Load a module of tools/_docs; what mkdocs and griffe have is not asked for."""
    stand_in = ModuleType("stand_in")
    stand_in.File = stand_in.Extension = object
    for name in ("mkdocs", "mkdocs.structure", "mkdocs.structure.files", "griffe"):
        monkeypatch.setitem(sys.modules, name, stand_in)

    def load(name):
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "_docs" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.parametrize(
    ("place", "words", "turned"),
    [
        ("index.md", "[a](docs/spark.md)", "[a](spark.md)"),
        ("index.md", "[a](docs/decisions)", "[a](decisions/index.md)"),
        ("index.md", "[a](#install)", "[a](#install)"),
        ("operations.md", "[a](../CHANGELOG.md)", "[a](changelog.md)"),
        ("operations.md", "[a](../README.md#install)", "[a](index.md#install)"),
        ("how-to/deploy.md", "[a](../operations.md#exit-codes)", "[a](../operations.md#exit-codes)"),
        ("reference/zookeeper.md", "[a](../docs/protocol.md)", "[a](../protocol.md)"),
        ("spark.md", "![a](profile.png)", "![a](profile.png)"),
        ("benchmarks.md", "the [raw](benchmarks/) figures", "the raw figures"),
        ("index.md", "[a](LICENSE)", "a"),
        ("index.md", "[a](docs/nothing.md)", "[a](docs/nothing.md)"),
        ("index.md", "[a](https://spinroot.com)", "[a](https://spinroot.com)"),
    ],
)
def test_a_link_between_files_becomes_one_between_pages(load, place, words, turned) -> None:
    assert load("hooks")._turned(words, place) == turned


def test_what_is_in_a_fence_is_no_link(load) -> None:
    page = "[a](docs/spark.md)\n\n```python\nx[0](docs/spark.md)\n```\n\n[b](docs/spark.md)\n"
    hooks = load("hooks")

    parts = [hooks._turned(part, "index.md") for part in hooks._prose_and_fences(page)]

    assert "".join(parts) == "[a](spark.md)\n\n```python\nx[0](docs/spark.md)\n```\n\n[b](spark.md)\n"


def test_every_page_is_on_the_site_once(load) -> None:
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    nav = re.findall(r"^ +- (?:\w+: )?([\w/-]+(?:\.md|/\*))$", settings, re.MULTILINE)
    hooks = load("hooks")
    pages = [each for each in hooks._expanded(nav) if each not in hooks.OUTSIDE.values()]
    here = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("**/*.md")}

    assert sorted(pages) == sorted({*here, hooks.DECISIONS})


def test_no_word_of_a_docstring_is_left_out(load) -> None:
    docstring = """Return one.

Attributes:
    first, second: both of
        them.
    third: alone.

Returns: False when it ended: then
    it comes again.

Raises:
    UsageError, ClosedError: it cannot be.
Idempotent: yes.
"""

    assert (
        load("docstrings").in_form(docstring)
        == """Return one.

Attributes:
    first: both of
        them.
    second: both of
        them.
    third: alone.


**Returns:** False when it ended: then it comes again.


Raises:
    UsageError: it cannot be.
    ClosedError: it cannot be.

**Idempotent:** yes.

"""
    )


def test_every_public_name_is_in_the_reference() -> None:
    names = {name for name in cassq.__all__ if not name.endswith("Error") and name != "__version__"}
    told = set(re.findall(r"^::: cassq\.(?:connect\.)?(\w+)$", API, re.MULTILINE))

    assert names <= told
    assert "::: cassq.errors" in API


def test_every_function_of_the_pipelines_is_in_the_reference() -> None:
    told = set(re.findall(r"^::: cassq\.spark\.pipeline\.\w+\.(\w+)$", API, re.MULTILINE))

    assert told == set(pipeline.__all__)
