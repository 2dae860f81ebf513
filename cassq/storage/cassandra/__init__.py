"""The storage port on Cassandra 5; `open_storage` is the way in."""

from cassq.storage.cassandra.cluster import open_session
from cassq.storage.cassandra.profiles import Address
from cassq.storage.cassandra.schema import CassandraSchema
from cassq.storage.cassandra.session import CassandraSession
from cassq.storage.cassandra.storage import CassandraStorage

__all__ = [
    "Address",
    "CassandraSchema",
    "CassandraSession",
    "CassandraStorage",
    "open_session",
    "open_storage",
]


def open_storage(address: Address, keyspace: str, *, is_schema_checked: bool = True) -> CassandraStorage:
    """Connect to a cluster and return its storage.

    Args:
        address: where the cluster is.
        keyspace: where cassq's tables are.
        is_schema_checked: whether the version of the schema is compared with the one this code needs.

    Raises:
        InvalidNameError: the keyspace's name is none.
        InvalidOptionError: the cluster has no datacenter of this name.
        StorageUnavailableError: no contact point answered within 8 seconds, or none let us in.
        SchemaMismatchError: the schema is missing, older or newer.
    """
    session = open_session(address, keyspace)
    if is_schema_checked:
        try:
            CassandraSchema(session).check_version()
        except BaseException:
            session.close()
            raise
    return CassandraStorage(session)
