"""Which faults of PostgreSQL pass by themselves, and what connections ask for."""

from typing import Any

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from service.db.core.db_errors import is_unavailable, takes_no_writes
from service.db.core.engine import make_engine


def raised(
    fault: psycopg.Error, *, broken: bool = False, statement: str | None = None
) -> DBAPIError:
    """As SQLAlchemy does; without a statement where there was no connection for it."""
    error = DBAPIError.instance(
        statement, None, fault, psycopg.Error, connection_invalidated=broken
    )
    assert isinstance(error, DBAPIError)
    return error


TOO_MANY = psycopg.OperationalError("number of parameters must be between 0 and 65535")


@pytest.mark.parametrize(
    ("fault", "away"),
    [
        (raised(psycopg.OperationalError("connection refused")), True),
        (raised(errors.TooManyConnections()), True),
        (raised(errors.AdminShutdown()), True),
        (raised(errors.CannotConnectNow()), True),
        (raised(errors.DiskFull()), True),
        (raised(errors.ReadOnlySqlTransaction()), True),
        (raised(errors.IdleInTransactionSessionTimeout(), broken=True), True),
        (PoolExhausted(), True),
        (raised(errors.UndefinedColumn()), False),  # what it refuses or ends by itself
        (raised(errors.UniqueViolation()), False),
        (raised(errors.DeadlockDetected()), False),
        (raised(TOO_MANY, statement="insert"), False),  # the driver's refusal
        (RuntimeError("a bug"), False),
    ],
    ids=lambda fault: repr(fault)[:60],
)
def test_a_database_that_cannot_be_had_is_away(fault: Exception, *, away: bool) -> None:
    assert is_unavailable(fault) is away


def test_only_one_that_is_there_takes_no_writes() -> None:
    faults = [errors.ReadOnlySqlTransaction(), errors.DiskFull(), errors.AdminShutdown()]

    assert [takes_no_writes(raised(fault)) for fault in faults] == [True, True, False]
    assert not takes_no_writes(RuntimeError("a bug"))


URL = "postgresql://rekindle@db.example/rekindle"


@pytest.mark.parametrize(("query", "seconds"), [("", 10), ("?connect_timeout=3", "3")])
async def test_libpq_is_asked_to_miss_a_server_that_is_gone_without_a_word_after_25_seconds(
    query: str, seconds: int | str
) -> None:
    params = await _asked_of_libpq(URL + query)

    probes = params["keepalives_interval"] * params["keepalives_count"]
    assert params["keepalives_idle"] + probes == 25
    assert params["tcp_user_timeout"] == 25_000
    assert params["connect_timeout"] == seconds


async def _asked_of_libpq(url: str) -> dict[str, Any]:
    engine, connect_params = make_engine(url), dict[str, Any]()

    @event.listens_for(engine.sync_engine, "do_connect")
    def note(_dialect: Any, _record: Any, _args: Any, params: dict[str, Any]) -> None:  # noqa: ANN401
        connect_params.update(params)
        raise psycopg.OperationalError("there is no such server")

    with pytest.raises(OperationalError):
        async with engine.connect():
            pass
    return connect_params
