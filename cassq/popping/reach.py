"""How far one look for messages goes: the word for it between the fetch thread and the fetcher."""

from enum import Enum


class Reach(Enum):
    """Into which pipes one look for messages goes."""

    #: Where there was something a moment ago; the pipes are not listed anew.
    KNOWN = "known"
    #: Likewise; where that gives nothing, the pipes are listed anew.
    LISTED = "listed"
    #: Also where another popper held the pipe a moment ago.
    BUSY = "busy"
    #: Also where there was nothing a moment ago: somebody says that something came.
    DRAINED = "drained"
