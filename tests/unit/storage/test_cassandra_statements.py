"""Statements that a cluster gets, and the tables of the schema."""

import re
from itertools import chain

import pytest

from cassq.storage.cassandra import documents, row_statements, topic_statements
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.cql_file import read_shapes
from cassq.storage.cassandra.statement import Statement

#: A read that decides nothing about messages.
APART = {cql.READ_VERSIONS}


def _statements():
    modules = (cql, row_statements, topic_statements, documents)
    for value in chain.from_iterable(vars(each).values() for each in modules):
        yield from value.values() if isinstance(value, dict) else [value]


READS = sorted(
    {
        each.cql
        for each in _statements()
        if isinstance(each, Statement) and "FROM {ks}" in each.cql and each.cql.startswith("SELECT")
    }
    - {each.cql for each in APART}
)


def test_there_are_reads_of_every_table():
    read = {re.search(r"FROM \{ks\}\.(\w+)", each)[1] for each in READS}

    assert read | {"schema_version"} == read_shapes().keys()


@pytest.mark.parametrize("read", READS)
def test_a_read_names_every_column_of_its_table_so_that_read_repair_writes_all_of_them_back(read):
    table = re.search(r"FROM \{ks\}\.(\w+)", read)[1]
    regular = {name for name, column in read_shapes()[table].columns.items() if column.kind == "regular"}

    named = set(re.findall(r"\w+", read[: read.index("FROM")]))

    assert regular <= named
