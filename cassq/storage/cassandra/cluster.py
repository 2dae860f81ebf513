"""How a cluster is reached.

Owns the driver's Cluster: contact points, patience, credentials and sockets, and what a failure to connect
means. It refuses to send statements.
"""

import re
import socket

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster
from cassandra.policies import ConstantReconnectionPolicy

from cassq.errors import AccessDeniedError, InvalidNameError, InvalidOptionError, StorageUnavailableError
from cassq.runtime.clock import SystemClock
from cassq.runtime.outage_log import spare
from cassq.storage.cassandra.errors_map import DRIVER_ERRORS, is_refused, tell, tell_rejection
from cassq.storage.cassandra.profiles import Address, profiles_for
from cassq.storage.cassandra.session import CONNECT_S, CassandraSession
from cassq.storage.cassandra.sick_nodes import SickNodes
from cassq.storage.cassandra.wide_connection import wide

_PROTOCOL_VERSION = 5
_RECONNECT_S = 1.0
# A node that is killed is noticed at once; one that falls silent only by this: after 5 s at most.
_HEARTBEAT_S = 3
_HEARTBEAT_TIMEOUT_S = 2
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")

# Without TCP_NODELAY a request of more than one segment waits 40 ms for an acknowledgement.
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
)


def open_session(address: Address, keyspace: str) -> CassandraSession:
    """Connect to a cluster.

    Raises:
        InvalidNameError: the keyspace's name is none.
        InvalidOptionError: the cluster has no datacenter of this name.
        AccessDeniedError: the user name or password was refused.
        StorageUnavailableError: no contact point answered within 8 seconds.
    """
    if not isinstance(keyspace, str) or not _KEYSPACE.fullmatch(keyspace):
        raise InvalidNameError(
            f"{keyspace!r} is not a keyspace name: use at most 48 lower-case letters, digits and '_', "
            "starting with a letter"
        )
    sick = SickNodes(SystemClock())
    try:
        cluster = _cluster(address, sick)
    except DRIVER_ERRORS as error:
        raise StorageUnavailableError(f"cannot find Cassandra at {address}: {tell(error)}") from error
    try:
        driver = cluster.connect()
        # No wall clock of ours decides between two writes.
        driver.use_client_timestamp = False
        return CassandraSession(driver, keyspace, sick, address.timeout_s)
    except DRIVER_ERRORS as error:
        known = sorted({host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter})
        cluster.shutdown()
        if address.datacenter and known and address.datacenter not in known:
            raise InvalidOptionError(
                f"the cluster at {address} has no datacenter {address.datacenter!r}; it has "
                f"{', '.join(map(repr, known))}"
            ) from error
        named = f" in datacenter {address.datacenter!r}" if address.datacenter else ""
        words = tell_rejection(
            error, is_encrypted=address.tls is not None, has_user=address.username is not None
        )
        if is_refused(error):
            raise AccessDeniedError(f"Cassandra at {address}{named} lets nobody in: {words}") from error
        raise StorageUnavailableError(f"cannot reach Cassandra at {address}{named}: {words}") from error


def _cluster(address: Address, sick: SickNodes) -> Cluster:
    auth = None
    if address.username is not None:
        auth = PlainTextAuthProvider(username=address.username, password=address.password or "")
    # Contact points are tried one after the other, and each is asked twice before it counts as silent.
    patience_s = max(0.5, CONNECT_S / len(address.hosts) / 2)
    spare("cassandra")
    return Cluster(
        connection_class=wide(Cluster.connection_class),
        contact_points=list(address.hosts),
        protocol_version=_PROTOCOL_VERSION,
        auth_provider=auth,
        ssl_context=address.tls,
        sockopts=list(_SOCKET_OPTIONS),
        compression=False,
        execution_profiles=profiles_for(address, sick),
        reconnection_policy=ConstantReconnectionPolicy(_RECONNECT_S, max_attempts=None),
        connect_timeout=patience_s,
        control_connection_timeout=patience_s,
        idle_heartbeat_interval=_HEARTBEAT_S,
        idle_heartbeat_timeout=_HEARTBEAT_TIMEOUT_S,
        monitor_reporting_enabled=False,
    )
