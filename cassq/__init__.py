"""A durable message queue on Apache Cassandra, and on a plain file where there is none.

import cassq

store = cassq.connect("sqlite:///orders.db")
orders = store.queue("orders")
orders.push(b"one order")

with orders.popper() as popper:
    for delivery in popper:
        with delivery:
            handle(delivery.body)
"""

from cassq._version import VERSION as __version__  # noqa: N811 - the name that tools look for
from cassq.connect import connect
from cassq.dead_letters import DeadLetters, DeadMessage
from cassq.delivery import Delivery
from cassq.errors import (
    BodyTooLargeError,
    CassqError,
    ClosedError,
    ConflictError,
    CoordinationUnavailableError,
    CorruptError,
    DecodeError,
    DeliveryExpiredError,
    InvalidNameError,
    InvalidOptionError,
    OutcomeUnknownError,
    PipeLostError,
    QueueNotFoundError,
    SchemaMismatchError,
    StorageUnavailableError,
    UnavailableError,
    UsageError,
)
from cassq.inspection import MessageStatus
from cassq.model.ids import MessageId
from cassq.model.message import Message, MessageIds
from cassq.model.rollup import Rollup
from cassq.model.settings import QueueSettings
from cassq.popper import Popper
from cassq.queue import Queue
from cassq.reaper import ReapReport
from cassq.statistics import PipeStats, QueueStats
from cassq.store import Store

__all__ = [
    "BodyTooLargeError",
    "CassqError",
    "ClosedError",
    "ConflictError",
    "CoordinationUnavailableError",
    "CorruptError",
    "DeadLetters",
    "DeadMessage",
    "DecodeError",
    "Delivery",
    "DeliveryExpiredError",
    "InvalidNameError",
    "InvalidOptionError",
    "Message",
    "MessageId",
    "MessageIds",
    "MessageStatus",
    "OutcomeUnknownError",
    "PipeLostError",
    "PipeStats",
    "Popper",
    "Queue",
    "QueueNotFoundError",
    "QueueSettings",
    "QueueStats",
    "ReapReport",
    "Rollup",
    "SchemaMismatchError",
    "StorageUnavailableError",
    "Store",
    "UnavailableError",
    "UsageError",
    "__version__",
    "connect",
]
