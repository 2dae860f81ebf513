"""The table of docs/model/README.md: rules, lines of the model, macros, functions. Needs no spin."""

import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

MODELS = Path(__file__).resolve().parents[2] / "docs" / "model"
ROW = re.compile(
    r"^\| (?P<rule>[^|]+) \| (?P<file>\w+\.pml):(?P<line>\d+) \| `NO_(?P<name>\w+)` \| (?P<code>[^|]+) \|$"
)


class Row(NamedTuple):
    """One rule of the table."""

    rule: str
    file: str
    line: int
    name: str
    code: str
    functions: list[str]


def rows():
    found = filter(None, map(ROW.match, (MODELS / "README.md").read_text(encoding="utf-8").splitlines()))
    return [
        Row(
            row["rule"],
            row["file"],
            int(row["line"]),
            row["name"],
            row["code"],
            re.findall(r"`([\w.]+)`", row["code"]),
        )
        for row in found
    ]


def find(dotted):
    """Return what a dotted name names: the longest part that imports, then attributes."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[count:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(dotted)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_the_line_that_the_table_names_has_the_rule(row):
    line = (MODELS / row.file).read_text(encoding="utf-8").splitlines()[row.line - 1]

    # When this fails: tools/check-model --table
    assert re.search(rf"RULE [a-z_0-9, ]*\b{row.name.lower()}\b", line)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_every_function_that_the_table_names_exists(row):
    assert row.functions
    assert all(find(function) is not None for function in row.functions)


def test_the_table_has_every_macro_of_the_models_and_no_other():
    in_models = {
        (model.name, macro)
        for model in MODELS.glob("*.pml")
        for macro in re.findall(r"\bNO_([A-Z][A-Z_0-9]*)\b", model.read_text(encoding="utf-8"))
    }

    assert in_models
    assert {(row.file, row.name) for row in rows()} == in_models
