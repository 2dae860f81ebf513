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
from cassq.bulk.schedules import Schedules
from cassq.connect import connect
from cassq.errors import (
    AccessDeniedError,
    ApplicationNotFoundError,
    BodyTooLargeError,
    CassqError,
    ClosedError,
    ConflictError,
    CoordinationUnavailableError,
    CorruptError,
    DeadLetterNotFoundError,
    DecodeError,
    DeliveryExpiredError,
    GroupNotFoundError,
    InvalidNameError,
    InvalidOptionError,
    KeyRefusedError,
    MessageNotFoundError,
    OffsetGoneError,
    OutcomeUnknownError,
    OverloadedError,
    PartitionLostError,
    PipeLostError,
    QueueNotFoundError,
    RateExceededError,
    ScheduleNotFoundError,
    SchemaMismatchError,
    StorageUnavailableError,
    TopicNotFoundError,
    UnavailableError,
    UsageError,
)
from cassq.model.events import (
    CommitsFailed,
    Committed,
    Event,
    Extended,
    Observer,
    Popped,
    Pushed,
    Reaped,
    Rejected,
    RolledBack,
    StorageCalled,
)
from cassq.model.ids import MessageId
from cassq.model.lease import Extension, Lease, Rollback, Settled
from cassq.model.message import Message, MessageIds
from cassq.model.recurrence import Schedule
from cassq.model.rollup import Rollup
from cassq.model.settings import QueueSettings
from cassq.model.subscription import Subscription
from cassq.model.topic import Position, TopicMessage
from cassq.model.topic_settings import TopicSettings
from cassq.observing.dead_letters import DeadLetters, DeadMessage
from cassq.observing.figures import PipeStats, PriorityStats, QueueStats, TypeStats
from cassq.observing.inspection import MessageState, MessageStatus, RunStats
from cassq.observing.redriving import Redriven
from cassq.popping.delivery import Delivery
from cassq.popping.leases import Leases
from cassq.popping.lessor import Leased, LeasedMessage, LeaseFuture, Lessor
from cassq.popping.pop_future import PopFuture
from cassq.popping.popper import Popper
from cassq.queue import Queue
from cassq.reaping.reap_report import ReapReport
from cassq.store import Store
from cassq.topics.consumer import Consumer
from cassq.topics.group import PartitionLag
from cassq.topics.group_lessor import GroupLessor
from cassq.topics.group_line import GroupFuture, GroupLeased
from cassq.topics.group_message import GroupMessage
from cassq.topics.history import MessageHistory
from cassq.topics.many_messages import Stretch
from cassq.topics.pages import Page
from cassq.topics.relay import Relay
from cassq.topics.topic import Topic
from cassq.topics.topic_care import PartitionStats
from cassq.topics.topic_reader import TopicReader
from cassq.worker.outcomes import Reject, Retry
from cassq.worker.worker import Worker

__all__ = [
    "AccessDeniedError",
    "ApplicationNotFoundError",
    "BodyTooLargeError",
    "CassqError",
    "ClosedError",
    "CommitsFailed",
    "Committed",
    "ConflictError",
    "Consumer",
    "CoordinationUnavailableError",
    "CorruptError",
    "DeadLetterNotFoundError",
    "DeadLetters",
    "DeadMessage",
    "DecodeError",
    "Delivery",
    "DeliveryExpiredError",
    "Event",
    "Extended",
    "Extension",
    "GroupFuture",
    "GroupLeased",
    "GroupLessor",
    "GroupMessage",
    "GroupNotFoundError",
    "InvalidNameError",
    "InvalidOptionError",
    "KeyRefusedError",
    "Lease",
    "LeaseFuture",
    "Leased",
    "LeasedMessage",
    "Leases",
    "Lessor",
    "Message",
    "MessageHistory",
    "MessageId",
    "MessageIds",
    "MessageNotFoundError",
    "MessageState",
    "MessageStatus",
    "Observer",
    "OffsetGoneError",
    "OutcomeUnknownError",
    "OverloadedError",
    "Page",
    "PartitionLag",
    "PartitionLostError",
    "PartitionStats",
    "PipeLostError",
    "PipeStats",
    "PopFuture",
    "Popped",
    "Popper",
    "Position",
    "PriorityStats",
    "Pushed",
    "Queue",
    "QueueNotFoundError",
    "QueueSettings",
    "QueueStats",
    "RateExceededError",
    "ReapReport",
    "Reaped",
    "Redriven",
    "Reject",
    "Rejected",
    "Relay",
    "Retry",
    "Rollback",
    "RolledBack",
    "Rollup",
    "RunStats",
    "Schedule",
    "ScheduleNotFoundError",
    "Schedules",
    "SchemaMismatchError",
    "Settled",
    "StorageCalled",
    "StorageUnavailableError",
    "Store",
    "Stretch",
    "Subscription",
    "Topic",
    "TopicMessage",
    "TopicNotFoundError",
    "TopicReader",
    "TopicSettings",
    "TypeStats",
    "UnavailableError",
    "UsageError",
    "Worker",
    "__version__",
    "connect",
]
