"""How the queues and topics of an application are named in the store.

Owns that mapping. What must not break: no application can name what is another's: its own name has no dot,
and what it calls `q` is `APPLICATION.q` in the store.
"""

import re

from cassq.errors import InvalidNameError
from cassq.model.ids import check_name, shorten

_APPLICATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")

#: What cassq keeps for itself in a store begins with this word.
OWN = "cassq"


def check_application(name: str) -> str:
    """Return the name of an application.

    Raises: InvalidNameError: it breaks the rule.
    """
    if not _APPLICATION.fullmatch(name) or name == OWN:
        raise InvalidNameError(
            f"application name {shorten(name)}: use letters, digits, '-' and '_', no dot, at most 40; "
            f"{OWN!r} is cassq's own"
        )
    return name


def full_name(application: str | None, name: str, what: str = "queue name") -> str:
    """Return the name in the store.

    Args:
        application: whose it is; None for an operator, who writes names in full.

    Raises: InvalidNameError: a name breaks the rule.
    """
    check_name(name, what)
    return name if application is None else check_name(f"{application}.{name}", what)


def own_name(application: str | None, full: str) -> str | None:
    """Return what an application calls a queue or topic; None where it is not its own."""
    if application is None:
        return full
    owner, dot, name = full.partition(".")
    return name if dot and owner == application else None
