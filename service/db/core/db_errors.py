"""Whether a fault says that PostgreSQL is away for a while, or that what it was asked is wrong."""

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted

_READ_ONLY = "25006"  # a replica, or a server of Azure whose disk is all but full
_DISK_FULL = "53100"
# SQLSTATEs: no connection, no room for one or on the disk, a server that ends, one that is read.
_AWAY = ("08", "53", "57P", _READ_ONLY)


def is_away(fault: Exception) -> bool:
    """Whether it is, or takes no writes, or no connection was free: the same may work later.

    A deadlock, or a statement that PostgreSQL ends by itself, is no such fault.
    """
    if isinstance(fault, PoolExhausted):
        return True
    if not isinstance(fault, DBAPIError):
        return False
    state = _state(fault)
    if fault.connection_invalidated or state.startswith(_AWAY):
        return True
    # Without a statement there was no connection to send one over. One that the driver refuses, as
    # of more values than it can send, has no state either, and the connection stands.
    return isinstance(fault, OperationalError) and not state and fault.statement is None


def takes_no_writes(fault: Exception) -> bool:
    """Whether it is there, but read-only or full."""
    return isinstance(fault, DBAPIError) and _state(fault) in (_READ_ONLY, _DISK_FULL)


def _state(fault: DBAPIError) -> str:
    return getattr(fault.orig, "sqlstate", None) or ""
