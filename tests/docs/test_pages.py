"""What the pages say of the code is true of the code: links, names, settings, exit codes."""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import reduce
from typing import Any

import click
import pytest
from pages import PAGES, ROOT, anchors, links, prose, table_below

from cassq import connect, errors, installation
from cassq.cli import exit_codes
from cassq.cli.main import cassq_command
from cassq.limits import KIB, MIB
from cassq.model.settings import settings_known
from cassq.model.topic_settings import TopicSettings
from cassq.storage.cassandra import open_session, open_storage, session

OPERATIONS = ROOT / "docs" / "operations.md"
PROTOCOL = ROOT / "docs" / "protocol.md"
TOPICS = ROOT / "docs" / "topics.md"
RULES = [row for page in (PROTOCOL, TOPICS) for row in table_below(page, "## Where each rule lives")]

#: What loggers are called in the code; `__name__` would be a name that no page tells.
LOGGERS = {
    name.strip('"')
    for path in (ROOT / "cassq").glob("**/*.py")
    for name in re.findall(r"""getLogger\(("[^"]+"|__name__)\)""", path.read_text("utf-8"))
}

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "KiB": KIB,
    "MiB": MIB,
    "GiB": KIB * MIB,
}


def page_id(page) -> str:
    return str(page.relative_to(ROOT))


def resolve(name: str) -> object:
    """Return what a dotted name stands for: a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[end:], module)
    raise AssertionError(f"{name} is no module")


def bounds_of(setting: Mapping[str, Any]) -> tuple[object, object]:
    """Return the least and the most of a setting; the first and the last of its choices."""
    low, *_, high = setting.get("choices") or (setting["low"], setting["high"])
    return low, high


def value_of(text: str) -> int | timedelta | str:
    """Read `10 000`, `64 MiB`, `60 s` or a word."""
    if text.startswith('"'):
        return text.strip('"')
    number, unit = re.fullmatch(r"([\d ]+?)(?: ([a-zA-Z]+))?", text).groups()
    count = int(number.replace(" ", ""))
    return count * _UNITS[unit] if unit else count


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_leads_somewhere(page) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page_id(page)} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page_id(page)} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_no_page_names_a_place_on_somebodys_machine(page) -> None:
    assert not re.search(r"/(?:root|work|home/\w+|Users)/", page.read_text("utf-8"))


@pytest.mark.parametrize("row", RULES, ids=[row[0][:40] for row in RULES])
def test_every_rule_names_code_that_exists(row) -> None:
    names = re.findall(r"`(cassq\.[\w.]+)`", row[1])
    assert names, f"no code carries {row[0]!r}"
    for name in names:
        resolve(name)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_dotted_name_in_a_page_exists(page) -> None:
    for name in re.findall(r"`(cassq(?:\.\w+)+)(?:\(\))?`", prose(page)):
        if not re.search(r"\.(service|timer|db|log)$", name) and name not in LOGGERS:
            resolve(name)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_file_that_a_page_names_exists(page) -> None:
    for name in re.findall(r"`((?:cassq|schema|tools|tests|docs)/[\w./-]+)`", prose(page)):
        assert (ROOT / name).exists(), f"{page_id(page)} names {name}"


def test_the_architecture_names_every_module_of_the_library() -> None:
    rows = table_below(ROOT / "docs" / "architecture.md", "## What each module owns")
    told = {name for row in rows for name in re.findall(r"`cassq\.([\w.]+)`", row[0])}
    paths = [path.relative_to(ROOT / "cassq").with_suffix("") for path in (ROOT / "cassq").glob("**/*.py")]
    modules = {".".join(path.parts) for path in paths if not path.name.startswith("_")}
    # A package that is told of as a whole stands for its modules.
    assert {name for name in modules if not any(f"{name}.".startswith(f"{each}.") for each in told)} == set()
    packages = {".".join(path.parts[:-1]) for path in paths}
    assert told <= modules | packages


def test_every_logger_is_in_the_table_and_the_other_way_round() -> None:
    rows = table_below(OPERATIONS, "In the log, at WARNING and above; a lost race is never logged:")
    assert {row[0].strip("`") for row in rows} == LOGGERS


def test_the_settings_table_is_that_of_the_code() -> None:
    told = {
        row[0].strip("`"): tuple(value_of(cell) for cell in row[1:4])
        for row in table_below(OPERATIONS, "## Settings of a queue")
    }
    assert told == {
        setting.name: (setting.default, *bounds_of(setting.metadata)) for setting in settings_known()
    }


def test_the_table_of_a_topics_settings_is_that_of_the_code() -> None:
    told = {
        row[0].strip("`"): tuple(value_of(cell) for cell in row[1:4])
        for row in table_below(OPERATIONS, "## Settings of a topic")
    }
    assert told == {
        setting.name: (setting.default, *bounds_of(setting.metadata)) for setting in TopicSettings.known()
    }


def test_the_exit_code_table_is_that_of_the_code() -> None:
    rows = table_below(OPERATIONS, "## Exit codes")
    told = {name: int(row[0]) for row in rows for name in re.findall(r"`(\w+Error)`", row[1])}
    tree = [each for each in vars(errors).values() if isinstance(each, type)]
    assert told == {each.__name__: each.exit_code for each in tree if issubclass(each, errors.CassqError)}
    assert [int(row[0]) for row in rows] == [code for code, _ in exit_codes.TABLE]


def test_the_wait_for_a_cluster_that_is_silent_is_that_of_the_code() -> None:
    page = " ".join(OPERATIONS.read_text("utf-8").split())
    most = f"{session.CONNECT_S:g}"
    assert f"after {session.CONNECT_S / 2:g} s where none of them answers, after {most} s at most" in page
    for call in (connect, installation.read_cassandra, open_storage, open_session):
        assert f"within {most} seconds" in (inspect.getdoc(call) or "")


def commands(group: click.Command, name: str) -> Iterator[str]:
    """Yield the command lines that a group has, as far as its options."""
    if not isinstance(group, click.Group):
        yield name
        return
    context = click.Context(group)
    for each in group.list_commands(context):
        yield from commands(group.get_command(context, each), f"{name} {each}")


def test_the_page_of_commands_names_every_command() -> None:
    rows = table_below(ROOT / "docs" / "reference" / "command-line.md", "## Commands")

    assert sorted(row[0].strip("`") for row in rows) == sorted(commands(cassq_command, "cassq"))


def test_every_threat_has_a_test_that_is_there() -> None:
    for threat, *_, told in table_below(ROOT / "docs" / "security.md", "## What stands against what"):
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", told)
        assert named, f"nothing tests what stands against: {threat}"
        for file, test in named:
            assert f"def {test}(" in (ROOT / "tests" / file).read_text("utf-8"), f"{file} has no {test}"
