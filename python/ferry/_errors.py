"""What Ferry raises. Every message has the values, the limit and the rank, and says what to do."""

from __future__ import annotations


class Error(Exception):
    """Base of all errors of Ferry."""

    __module__ = "ferry"


class InvalidArgument(Error, ValueError):
    """An argument is bad. The message names it, its value and the limit. Nothing has moved unless it says so."""

    __module__ = "ferry"


class OutOfOrder(Error, RuntimeError):
    """The call is not allowed now: a combine before its dispatch, another thread in the object, a copy of a fork."""

    __module__ = "ferry"


class Closed(Error, ValueError):
    """An Exchange or a World is used after its close()."""

    __module__ = "ferry"


class PeerMissing(Error, RuntimeError):
    """A rank did not come within the deadline, or it said that it will not. Every later call raises it again."""

    __module__ = "ferry"

    rank: int = -1  #: the rank that did not come
    my_rank: int = -1  #: the rank that raised this
    reported_by: int = -1  #: the rank whose deadline passed
    operation: str = "none"  #: "dispatch", "combine" or "set_up"
    phase: str = "none"  #: what was waited for: "routing", "message", "result", ...
    token: int = -1  #: the token that was waited for; -1 where the wait was not for one token
    absence: str = "late"  #: "late", "aborted", "left": it destroyed its exchange, or "ended": its process did


class Aborted(PeerMissing):
    """A rank said that it takes no further part (World.abort, or an exception in its body of run_ranks)."""

    __module__ = "ferry"

    reason: str = ""  #: in that rank's words


class Unsupported(Error, NotImplementedError):
    """This build, this machine or this world cannot do it."""

    __module__ = "ferry"


class FileRefused(Error, OSError):
    """A file could not be read or written."""

    __module__ = "ferry"


class SystemRefused(Error, OSError):
    """The operating system refused memory or threads."""

    __module__ = "ferry"
