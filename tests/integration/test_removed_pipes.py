"""Lists of pipes among more deletions than Cassandra reads across at once, with its own threshold."""

import secrets

import pytest

from cassq.errors import StorageUnavailableError
from cassq.model.ids import just_before, new_pipe_id, new_token, time_key
from cassq.model.pipe import Head, PipeEntry
from cassq.model.shelf import Shelf
from cassq.storage.cassandra import CassandraStorage
from cassq.storage.cassandra import statements as cql

pytestmark = [pytest.mark.service, pytest.mark.slow]

#: `tombstone_failure_threshold` is 100 000.
REMOVED = 105_000
AT_ONCE = 500


def test_a_list_is_read_whole_however_many_were_deleted_from_it(cassandra_session):
    storage, name = CassandraStorage(cassandra_session), f"q-{secrets.token_hex(6)}"
    now = new_pipe_id()
    left = [just_before(now, seconds) for seconds in (86_000.0, 40_000.0, 1.0)]
    for pipe in left:
        storage.create_pipe(name, PipeEntry(pipe, "p", shelf=Shelf.SORTED), Head(new_token()))
    gone = [just_before(now, 86_400.0 * place / REMOVED) for place in range(REMOVED)]
    work = [(cql.DELETE_STAGED, (name, 1, pipe)) for pipe in gone]
    cassandra_session.execute_in_turn([work[at : at + AT_ONCE] for at in range(0, REMOVED, AT_ONCE)])
    with pytest.raises(StorageUnavailableError, match="READ_TOO_MANY_TOMBSTONES"):
        cassandra_session.execute(cql.READ_STAGED[cql.WHOLE], (name, 1))

    found = [entry.pipe for entry in storage.list_pipes(name, shelf=Shelf.SORTED).entries]
    since = [entry.pipe for entry in storage.list_pipes(name, left[1], shelf=Shelf.SORTED).entries]
    until = [entry.pipe for entry in storage.list_pipes(name, until=left[1], shelf=Shelf.SORTED).entries]

    assert found == sorted(left, key=time_key)
    assert (since, until) == (found[1:], found[:2])
