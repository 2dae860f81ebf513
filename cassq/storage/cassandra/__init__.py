"""The storage port on Cassandra 5; `open_storage` is the way in."""

import ssl
from collections.abc import Sequence

from cassq.storage.cassandra.profiles import Address
from cassq.storage.cassandra.schema import CassandraSchema
from cassq.storage.cassandra.session import CassandraSession, open_session
from cassq.storage.cassandra.storage import CassandraStorage

__all__ = [
    "Address",
    "CassandraSchema",
    "CassandraSession",
    "CassandraStorage",
    "open_session",
    "open_storage",
]


def open_storage(  # noqa: PLR0913 - one keyword for each part of a URL
    hosts: Sequence[tuple[str, int]],
    keyspace: str,
    *,
    username: str | None = None,
    password: str | None = None,
    datacenter: str | None = None,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = 10.0,
    is_schema_checked: bool = True,
) -> CassandraStorage:
    """Connect to a cluster and return its storage.

    Args:
        hosts: contact points, as (host, port).
        keyspace: where cassq's tables are.
        username: for clusters that ask for one.
        password: belongs to it.
        datacenter: the one to talk to; None where there is only one.
        tls: the context to encrypt with.
        timeout_s: how long one request may take.
        is_schema_checked: whether the version of the schema is compared with the one this code needs.

    Raises:
        InvalidNameError: the keyspace's name is none.
        InvalidOptionError: the cluster has no datacenter of this name.
        StorageUnavailableError: no contact point answered within 10 seconds, or none let us in.
        SchemaMismatchError: the schema is missing, older or newer.
    """
    session = open_session(Address(hosts, username, password, datacenter, tls, timeout_s), keyspace)
    if is_schema_checked:
        try:
            CassandraSchema(session).check_version()
        except BaseException:
            session.close()
            raise
    return CassandraStorage(session)
