"""From a URL to an open store; the only importer of adapters.

Owns which adapters go together, and that an open store is closed when the program ends. What must not break:
nothing but this module and `cassq.installation` knows an adapter.
"""

import atexit
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Unpack

from cassq.coordination.absent import AbsentCoordinator
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import InvalidOptionError
from cassq.model.events import Observer
from cassq.model.ids import shorten
from cassq.model.tracing import Tracer
from cassq.runtime.clock import SystemClock
from cassq.runtime.files import FILE_MODE
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store
from cassq.urls import (
    EXAMPLES,
    CassandraTarget,
    StoreOptions,
    check_text,
    hide,
    take_apart_cassandra,
    take_apart_sqlite,
)

#: What a tracer has.
TRACER_METHODS = (
    *("push(queue, size)", "pop(queue, consumer)", "process(queue, message)"),
    "commit(queue, consumer, messages)",
)

#: How long `connect` waits for ZooKeeper before it goes on without it.
ZOOKEEPER_PATIENCE_S = 2.0


def connect(
    url: str,
    *,
    observer: Observer | None = None,
    tracer: Tracer | None = None,
    **options: Unpack[StoreOptions],
) -> Store:
    """Open a store.

    Args:
        url: `cassandra://[USER:PASSWORD@]HOST[:PORT][,…]/KEYSPACE?zookeeper=HOST[:PORT][,…]`,
            `sqlite:///RELATIVE.db`, `sqlite:////ABSOLUTE.db`, or `memory:`.
        options: what may also stand behind the `?` of the URL. For Cassandra: zookeeper, zookeeper_auth
            (USER:PASSWORD), zookeeper_session (a duration), username, password, datacenter (then
            LOCAL_QUORUM), tls (1, or "noverify" for tests), tls_ca, tls_cert, tls_key (files), timeout (a
            duration, for one request). For SQLite: durability ("full", or "normal": a power cut may lose the
            last moments), mode (who may use a file that is made, in octal: "0600" unless said otherwise).
            Each is a str; a duration may be a timedelta or a number of seconds, too.
        observer: is told of each call of this process to the store and its queues; see `cassq.Observer`.
        tracer: follows messages from their push to their end; see `cassq.tracing.OpenTelemetryTracer`.

    Raises:
        InvalidOptionError: the URL or an option is malformed or unknown, there is no such datacenter, or the
            observer or the tracer is none.
        AccessDeniedError: the database lets nobody in by this user name and password.
        StorageUnavailableError: the database cannot be reached; within 8 seconds.
        SchemaMismatchError: the schema is missing, older or newer than this version needs.
        CorruptError: the SQLite file is not one.
    """
    scheme, _, rest = check_text(url).partition(":")
    _check("observer", observer, "note(event)")
    _check("tracer", tracer, *TRACER_METHODS)
    make = partial(Store, observer=observer, tracer=tracer)
    if scheme == "memory" and rest == "" and not options:
        return _open_sqlite(make, None, is_synced=False)
    if scheme == "sqlite":
        path, given = take_apart_sqlite(url, options)
        mode = int(given.get("mode", f"{FILE_MODE:o}"), 8)
        is_synced = given.get("durability", "full") == "full"
        return _open_sqlite(make, path, is_synced=is_synced, mode=mode)
    if scheme == "cassandra":
        return _open_cassandra(make, take_apart_cassandra(url, options))
    raise InvalidOptionError(f"{hide(url)!r} is not the URL of a store: use {EXAMPLES}")


def _check(option: str, value: object, *methods: str) -> None:
    for method in () if value is None else methods:
        if isinstance(value, type) or not callable(getattr(value, method.partition("(")[0], None)):
            raise InvalidOptionError(
                f"{option}={shorten(value)} has no method {method}: give an object of a class that has"
            )


def _open_cassandra(make: Callable[..., Store], target: CassandraTarget) -> Store:
    # The two clients take longer to import than all the rest, and an embedded store needs neither.
    from cassq.coordination.zookeeper.client import Timeouts  # noqa: PLC0415
    from cassq.coordination.zookeeper.coordinator import ZooKeeperCoordinator  # noqa: PLC0415
    from cassq.storage.cassandra import Address, open_storage  # noqa: PLC0415

    address = Address(
        target.hosts, target.username, target.password, target.datacenter, target.tls, target.timeout_s
    )
    storage = open_storage(address, target.keyspace)
    clock = SystemClock()
    coordinator: ZooKeeperCoordinator | AbsentCoordinator
    if target.zookeeper is None:
        coordinator = AbsentCoordinator()
    else:
        coordinator = ZooKeeperCoordinator(
            target.zookeeper,
            target.keyspace,
            clock=clock,
            timeouts=Timeouts(session=target.zookeeper_session_s),
            auth=target.zookeeper_auth,
        )
        # Pushes do without it, so it may be down; but a first pop should not come too early.
        coordinator.wait_connected(ZOOKEEPER_PATIENCE_S)

    def close_all() -> None:
        coordinator.close()
        storage.close()

    store = make(target.shown, Adapters(storage, coordinator, close_all), clock=clock)
    return _closed_at_exit(store)


def _open_sqlite(
    make: Callable[..., Store], path: str | None, *, is_synced: bool, mode: int = FILE_MODE
) -> Store:
    clock = SystemClock()
    storage = SqliteStorage(path, is_synced=is_synced, clock=clock, mode=mode)
    coordinator = LocalCoordinator(f"{path}-coordination" if path else None, clock)

    def close_all() -> None:
        coordinator.close()
        storage.close()

    url = f"sqlite:///{path}" if path else "memory:"
    store = make(url, Adapters(storage, coordinator, close_all), clock=clock)
    return _closed_at_exit(store)


def _closed_at_exit(store: Store) -> Store:
    # A program that ends without closing its store still stores what it pushed, seals its pipes and gives
    # back what it has. The threads that push and pop keep the store until they are closed; the hook does not.
    reference = weakref.ref(store)

    def close() -> None:
        left = reference()
        if left:
            was_closed = left.is_closed
            left.close()  # or wait until it is closed, where a daemon thread is about it
            if left.left_behind and not was_closed:
                warnings.warn(
                    f"{left!r} was never closed, and {left.left_behind} messages were not stored at the end: "
                    "close it, or wait for the futures of push_soon()",
                    ResourceWarning,
                    stacklevel=1,
                    source=left,
                )

    atexit.register(close)
    weakref.finalize(store, atexit.unregister, close).atexit = False
    return store
