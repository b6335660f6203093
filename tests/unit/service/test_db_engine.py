"""What our connections to PostgreSQL ask for."""

from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from service.db.core.engine import make_engine

URL = "postgresql://rekindle@db.example/rekindle"


@pytest.mark.parametrize(("asked", "seconds"), [("", 10), ("?connect_timeout=3", "3")])
async def test_libpq_is_asked_to_miss_a_server_that_is_gone_without_a_word_after_25_seconds(
    asked: str, seconds: int | str
) -> None:
    given = await _asked_of_libpq(URL + asked)

    probes = given["keepalives_interval"] * given["keepalives_count"]
    assert given["keepalives_idle"] + probes == 25
    assert given["tcp_user_timeout"] == 25_000
    assert given["connect_timeout"] == seconds


async def _asked_of_libpq(url: str) -> dict[str, Any]:
    engine, given = make_engine(url), dict[str, Any]()

    @event.listens_for(engine.sync_engine, "do_connect")
    def note(_dialect: Any, _record: Any, _args: Any, params: dict[str, Any]) -> None:  # noqa: ANN401
        given.update(params)
        raise psycopg.OperationalError("there is no such server")

    with pytest.raises(OperationalError):
        async with engine.connect():
            pass
    return given
