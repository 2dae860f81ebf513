"""How each kind of call goes out.

Owns the cluster's address, and the consistency, retries and timeout of each kind of call. What must not
break: nothing that writes has a policy that would send it again.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
from cassandra.policies import DCAwareRoundRobinPolicy, FallthroughRetryPolicy, RetryPolicy, TokenAwarePolicy
from cassandra.query import tuple_factory

from cassq.storage.cassandra.sick_nodes import HealthyFirst, SickNodes
from cassq.storage.cassandra.statement import Call


@dataclass(frozen=True, slots=True)
class Address:
    """Where a cluster is and how to get in.

    Attributes:
        hosts: contact points, as (host, port).
        username, password: None where the cluster asks for none.
        datacenter: the one to talk to, with LOCAL_QUORUM and LOCAL_SERIAL; None for QUORUM and SERIAL.
        tls: the context to encrypt with; None for plain connections.
        timeout_s: how long one request may take.
    """

    hosts: Sequence[tuple[str, int]]
    username: str | None = None
    password: str | None = None
    datacenter: str | None = None
    tls: ssl.SSLContext | None = None
    timeout_s: float = 10.0

    def __str__(self) -> str:
        """Return the contact points, for error messages."""
        return ", ".join(f"{host}:{port}" for host, port in self.hosts)


def profiles_for(address: Address, sick: SickNodes) -> dict[object, ExecutionProfile]:
    """Return the execution profile of each kind of call, under the name of the kind.

    Args:
        sick: the nodes to ask last.
    """
    quorum, serial = ConsistencyLevel.QUORUM, ConsistencyLevel.SERIAL
    if address.datacenter is not None:
        quorum, serial = ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.LOCAL_SERIAL
    levels = {
        Call.WRITE: quorum,
        Call.READ: quorum,
        Call.SERIAL_READ: serial,
        Call.TRANSACTION: quorum,
        Call.LOCAL: ConsistencyLevel.LOCAL_ONE,
    }

    def profile(call: Call) -> ExecutionProfile:
        is_write = call in (Call.WRITE, Call.TRANSACTION)
        return ExecutionProfile(
            # Shuffled: what failed at a silent node and is tried again shall mostly go to another one.
            load_balancing_policy=HealthyFirst(
                TokenAwarePolicy(DCAwareRoundRobinPolicy(address.datacenter or ""), shuffle_replicas=True),
                sick,
            ),
            retry_policy=FallthroughRetryPolicy() if is_write else RetryPolicy(),
            consistency_level=levels[call],
            serial_consistency_level=serial,
            request_timeout=address.timeout_s,
            row_factory=tuple_factory,
        )

    return {EXEC_PROFILE_DEFAULT: profile(Call.READ)} | {call.value: profile(call) for call in Call}
