"""Which faults of PostgreSQL pass by themselves."""

import psycopg
import pytest
from psycopg import errors
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from service.db.core.db_errors import is_unavailable, takes_no_writes


def raised(fault: psycopg.Error, *, broken: bool = False, sent: str | None = None) -> DBAPIError:
    """As SQLAlchemy does; without a statement where there was no connection for it."""
    made = DBAPIError.instance(sent, None, fault, psycopg.Error, connection_invalidated=broken)
    assert isinstance(made, DBAPIError)
    return made


@pytest.mark.parametrize(
    "fault",
    [
        psycopg.OperationalError("connection refused"),
        errors.TooManyConnections(),
        errors.AdminShutdown(),
        errors.CannotConnectNow(),
        errors.DiskFull(),
        errors.ReadOnlySqlTransaction(),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_database_that_cannot_be_had_is_away(fault: psycopg.Error) -> None:
    assert is_unavailable(raised(fault))


def test_so_it_is_where_it_broke_off_a_connection_or_none_was_free() -> None:
    assert is_unavailable(raised(errors.IdleInTransactionSessionTimeout(), broken=True))
    assert is_unavailable(PoolExhausted())


@pytest.mark.parametrize(
    "fault",
    [errors.UndefinedColumn(), errors.UniqueViolation(), errors.DeadlockDetected()],
    ids=lambda fault: type(fault).__name__,
)
def test_what_it_refuses_or_ends_by_itself_is_no_sign_that_it_is_away(fault: psycopg.Error) -> None:
    assert not is_unavailable(raised(fault))


def test_a_statement_that_the_driver_refuses_is_no_sign_of_it_either() -> None:
    fault = psycopg.OperationalError("number of parameters must be between 0 and 65535")

    assert not is_unavailable(raised(fault, sent="insert"))


def test_no_other_fault_is_its_own() -> None:
    assert not is_unavailable(RuntimeError("a bug"))


def test_only_one_that_is_there_takes_no_writes() -> None:
    found = [errors.ReadOnlySqlTransaction(), errors.DiskFull(), errors.AdminShutdown()]

    assert [takes_no_writes(raised(fault)) for fault in found] == [True, True, False]
    assert not takes_no_writes(RuntimeError("a bug"))
