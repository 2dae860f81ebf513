"""How a kazoo client is opened for cassq.

Owns the choice of kazoo's options and of the time-outs. Refuses to connect. The rule that must not break:
kazoo never gives up connecting, and never writes to stderr by itself.
"""

import logging
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL

from cassq.errors import InvalidOptionError
from cassq.runtime.outage_log import spare

# A lost connection is an answer to the caller (CoordinationUnavailableError), not words on stderr; who
# wants kazoo's own account configures this logger.
_LOG = logging.getLogger("cassq.kazoo")
_LOG.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long things may take, in seconds.

    Attributes:
        session: after so long without a sign of life the service ends the session, and the claims of its
            process are free; the servers bound it (by default to 4 … 40 s).
        answer: a call waits so long for its reply and, until the first connection, for that.
    """

    session: float = 10.0
    answer: float = 3.0

    @property
    def trust(self) -> float:
        """How long an answered beat is trusted; below the session's, which the service may shorten."""
        return self.session * 2 / 3

    @property
    def beat(self) -> float:
        """How often to beat: one may go missing before trust ends."""
        return self.session / 4


#: What fits a local network.
DEFAULT_TIMEOUTS = Timeouts()


def open_client(hosts: str, auth: tuple[str, str] | None, timeouts: Timeouts) -> Any:  # noqa: ANN401
    """Make a client that has yet to be started (kazoo has no types).

    Raises:
        InvalidOptionError: the hosts cannot be read, or a time-out is not positive.
    """
    if timeouts.session <= 0 or timeouts.answer <= 0:
        raise InvalidOptionError(f"time-outs are positive numbers of seconds: {timeouts}")
    for library in ("cassq.kazoo", "kazoo"):
        spare(library)
    try:
        return KazooClient(
            hosts=hosts,
            timeout=timeouts.session,
            auth_data=[("digest", ":".join(auth))] if auth else None,
            default_acl=CREATOR_ALL_ACL if auth else None,
            connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0},
            logger=_LOG,
        )
    except ValueError as error:
        raise InvalidOptionError(
            f"{hosts!r} are not ZooKeeper hosts: expected HOST[:PORT][,HOST[:PORT]…][/CHROOT]"
        ) from error
