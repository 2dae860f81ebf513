"""Asking a server whether it serves: a query over CQL, a four-letter word to ZooKeeper.

Owns just enough of both protocols to tell "listens" from "answers". Refuses to be a client: whatever
is not the expected answer counts as "not yet".
"""

import socket
import ssl
import struct
from pathlib import Path

_TIMEOUT_SECONDS = 5.0
_STARTUP, _QUERY, _AUTH_RESPONSE = 0x01, 0x07, 0x0F
_READY, _AUTHENTICATE, _RESULT, _AUTH_SUCCESS = 0x02, 0x03, 0x08, 0x10
_ONE, _ALL = 0x0001, 0x0005

_IS_NORMAL = "SELECT bootstrapped FROM system.local WHERE key = 'local'"
# Three replicas keep this keyspace in any ring of three; the row need not be there.
_ASKS_EVERYONE = (
    "SELECT status FROM system_distributed.view_build_status "
    "WHERE keyspace_name = 'cassq' AND view_name = 'probe'"
)


def cassandra_answers(
    address: str, port: int, *, everyone: bool, auth: bool, authority: Path | None = None
) -> bool:
    """Return whether the node answers CQL and has joined.

    With `everyone`, whether a query at consistency ALL succeeds: this node then sees all three
    alive, and they answer it. With `authority`, a PEM file, over TLS.
    """
    try:
        with _connect(address, port, authority) as connection:
            if not _open(connection, auth=auth):
                return False
            if b"COMPLETED" not in _query(connection, _IS_NORMAL, _ONE):
                return False
            return not everyone or bool(_query(connection, _ASKS_EVERYONE, _ALL))
    except OSError:
        return False


def zookeeper_answers(address: str, port: int, *, ring: bool) -> bool:
    """Return whether the server serves clients; in a ring, as leader or follower of a quorum."""
    try:
        with socket.create_connection((address, port), _TIMEOUT_SECONDS) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return False
    if ring:
        return b"Mode: leader" in answer or b"Mode: follower" in answer
    return b"Mode: standalone" in answer


def _connect(address: str, port: int, authority: Path | None) -> socket.socket:
    connection = socket.create_connection((address, port), _TIMEOUT_SECONDS)
    if authority is None:
        return connection
    try:
        context = ssl.create_default_context(cafile=str(authority))
        return context.wrap_socket(connection, server_hostname=address)
    except BaseException:
        connection.close()
        raise


def _open(connection: socket.socket, *, auth: bool) -> bool:
    options = {"CQL_VERSION": "3.0.0"}
    body = struct.pack(">H", len(options)) + b"".join(
        _string(key) + _string(value) for key, value in options.items()
    )
    opcode, _ = _exchange(connection, _STARTUP, body)
    if opcode == _AUTHENTICATE and auth:
        token = b"\0cassandra\0cassandra"
        opcode, _ = _exchange(connection, _AUTH_RESPONSE, struct.pack(">i", len(token)) + token)
        return opcode == _AUTH_SUCCESS
    return opcode == _READY


def _query(connection: socket.socket, cql: str, consistency: int) -> bytes:
    text = cql.encode()
    body = struct.pack(">i", len(text)) + text + struct.pack(">HB", consistency, 0)
    opcode, answer = _exchange(connection, _QUERY, body)
    return answer if opcode == _RESULT else b""


def _string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _exchange(connection: socket.socket, opcode: int, body: bytes) -> tuple[int, bytes]:
    """Send one frame of protocol version 4 and return the opcode and body of the answer."""
    connection.sendall(struct.pack(">BBhBi", 4, 0, 0, opcode, len(body)) + body)
    _, _, _, answer, length = struct.unpack(">BBhBi", _receive(connection, 9))
    return answer, _receive(connection, length)


def _receive(connection: socket.socket, length: int) -> bytes:
    received = b""
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            raise ConnectionResetError("the server closed the connection")
        received += part
    return received
