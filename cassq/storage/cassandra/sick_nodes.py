"""Nodes that let requests run out of time: they are asked last for a while.

Owns which nodes these are. A node that is cut off from the others answers the driver's heartbeats, so the
driver takes it for healthy and sends it its share; each of those requests waits until its time is up.
Refuses to judge whether a node is down, which is the driver's. What must not break: no node is ever left
out, so that where all are sick all are asked as before.

    client                 node 1 (cut off)             node 2
    | take --------------->| waits for replicas          |
    |<---- time-out -------|  (sick for SICK_S)          |
    | load, take ---------------------------------------->| applied
"""

from collections.abc import Iterator
from typing import Any

from cassandra import OperationTimedOut, Timeout, Unavailable
from cassandra.policies import LoadBalancingPolicy

from cassq.runtime.clock import Clock

#: For so long after its last failure a node is asked last.
SICK_S = 5.0

_SIGNS = (OperationTimedOut, Timeout, Unavailable)


class SickNodes:
    """Remembers when a node last failed as only a sick one does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sick_until: dict[object, float] = {}

    def note(self, error: Exception, future: Any) -> None:  # noqa: ANN401 - the driver's
        """Hear of a request that failed; what says nothing about its node is passed over."""
        if not isinstance(error, _SIGNS):
            return
        node = getattr(error, "last_host", None) or getattr(future, "coordinator_host", None)
        if node is not None:
            self._sick_until[node] = self._clock.now() + SICK_S

    def are_any(self) -> bool:
        """Tell whether any node is sick; those that were are forgotten."""
        if not self._sick_until:
            return False
        now = self._clock.now()
        self._sick_until = {node: until for node, until in self._sick_until.items() if until > now}
        return bool(self._sick_until)

    def has(self, node: object) -> bool:
        """Tell whether a node is sick."""
        return node in self._sick_until


class HealthyFirst(LoadBalancingPolicy):  # type: ignore[misc]  # the driver has no types
    """Another policy's order, with sick nodes moved to the end."""

    def __init__(self, order: LoadBalancingPolicy, sick: SickNodes) -> None:
        super().__init__()
        self._order = order
        self._sick = sick

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> Iterator[Any]:  # noqa: ANN401
        """Yield the nodes to ask, in turn."""
        plan = self._order.make_query_plan(working_keyspace, query)
        if not self._sick.are_any():
            yield from plan
            return
        last = []
        for node in plan:
            if self._sick.has(node):
                last.append(node)
            else:
                yield node
        yield from last

    def populate(self, cluster: Any, hosts: Any) -> None:  # noqa: ANN401
        """Pass on."""
        self._order.populate(cluster, hosts)

    def check_supported(self) -> None:
        """Pass on."""
        self._order.check_supported()

    def distance(self, host: Any) -> Any:  # noqa: ANN401
        """Pass on."""
        return self._order.distance(host)

    def on_up(self, host: Any) -> None:  # noqa: ANN401
        """Pass on."""
        self._order.on_up(host)

    def on_down(self, host: Any) -> None:  # noqa: ANN401
        """Pass on."""
        self._order.on_down(host)

    def on_add(self, host: Any) -> None:  # noqa: ANN401
        """Pass on."""
        self._order.on_add(host)

    def on_remove(self, host: Any) -> None:  # noqa: ANN401
        """Pass on."""
        self._order.on_remove(host)
