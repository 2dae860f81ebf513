"""What a statement is, and the two timestamps of whatever is written outside of a transaction."""

from dataclasses import dataclass
from enum import Enum

#: What is written once: deletions and transactions beat it, and sending it again changes nothing.
BORN_AT = 1

#: What is deleted stays deleted, whatever arrives later. One below the largest timestamp there is.
DIES_AT = 2**63 - 2


class Call(Enum):
    """What kind of call a statement is."""

    WRITE = "write"  # QUORUM, never sent again by the driver
    READ = "read"  # QUORUM
    SERIAL_READ = "serial"  # SERIAL: settles what a transaction left half done
    TRANSACTION = "transaction"  # QUORUM and SERIAL, never sent again by the driver
    LOCAL = "local"  # one node's own tables: its clock, its settings


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement to prepare; `{ks}` in its text stands for the keyspace."""

    call: Call
    cql: str
    is_idempotent: bool = True
    page_rows: int = 5000
