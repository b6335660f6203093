"""Classify database errors: PostgreSQL is away for a while, or the statement is wrong."""

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted

_READ_ONLY = "25006"  # a replica, or a server of Azure whose disk is almost full
_DISK_FULL = "53100"
# Classes of SQLSTATE: connection lost, connections or disk full, server shutting down, read-only.
_UNAVAILABLE_STATES = ("08", "53", "57P", _READ_ONLY)


def is_unavailable(fault: Exception) -> bool:
    """Return whether PostgreSQL is away, read-only or out of connections: a retry may work.

    False for a deadlock, and for a statement that PostgreSQL cancels.
    """
    if isinstance(fault, PoolExhausted):
        return True
    if not isinstance(fault, DBAPIError):
        return False
    state = _state(fault)
    if fault.connection_invalidated or state.startswith(_UNAVAILABLE_STATES):
        return True
    # Without a statement there was no connection to send it over. A statement that the driver
    # refuses, as with too many values, has no SQLSTATE either, but its connection works.
    return isinstance(fault, OperationalError) and not state and fault.statement is None


def takes_no_writes(fault: Exception) -> bool:
    """Return whether PostgreSQL answers, but is read-only or its disk is full."""
    return isinstance(fault, DBAPIError) and _state(fault) in (_READ_ONLY, _DISK_FULL)


def _state(fault: DBAPIError) -> str:
    return getattr(fault.orig, "sqlstate", None) or ""
