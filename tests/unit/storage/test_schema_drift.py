"""How tables that stand differ from those of the schema, and which statements mend it."""

from dataclasses import replace

import pytest

from cassq.storage.cassandra.cql_file import ColumnShape, read_tables
from cassq.storage.cassandra.schema_drift import compare


def drift(**changes):
    """Compare the schema with itself, but for changes of the table `pipes`."""
    wanted = read_tables("ks")
    stands = {name: shape for name, (shape, _) in wanted.items()}
    stands["pipes"] = replace(stands["pipes"], **changes)
    return list(compare("ks", stands, wanted))


def test_the_schema_does_not_differ_from_itself():
    assert drift() == []


@pytest.mark.parametrize(
    ("name", "written"),
    [("by_colour", "by_colour"), ("ByColour", '"ByColour"'), ('a "b"', '"a ""b"""')],
)
def test_an_index_is_told_and_never_dropped_by_itself(name, written):
    (found,) = drift(indexes=[name])

    assert found.told == f"index {name} of table pipes is not one of cassq's"
    assert found.mends == (f"DROP INDEX ks.{written}",)
    assert not found.is_safe


def test_an_index_goes_before_its_column():
    columns = read_tables("ks")["pipes"][0].columns

    found = drift(indexes=["by_colour"], columns={**columns, "colour": ColumnShape("text")})

    assert [each.mends[0] for each in found] == [
        "DROP INDEX ks.by_colour",
        "ALTER TABLE ks.pipes DROP colour",
    ]
