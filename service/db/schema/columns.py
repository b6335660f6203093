"""Column types, conditions and indexes that the tables share."""

from collections.abc import Iterable

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    DateTime,
    Index,
    MetaData,
    Numeric,
    Text,
    any_,
    func,
    literal,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)

Moment = DateTime(timezone=True)
Money = Numeric(14, 6)


def among(column: ColumnElement[str], values: Iterable[str]) -> ColumnElement[bool]:
    """Return the condition that ``column`` is in ``values``, as one parameter, unlike IN."""
    return column == any_(literal(list(values), ARRAY(Text)))


def one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    """Return a CHECK that ``column`` holds one of the enum's values."""
    listed = ", ".join(f"'{v}'" for v in values)
    return CheckConstraint(f"{column} in ({listed})", name=column)


def partial_index(name: str, *columns: str, where: str) -> Index:
    """Return an index of the rows ``where``; queries must spell the condition alike."""
    return Index(name, *columns, postgresql_where=text(where))


def lease_columns() -> list[Column[object]]:
    """Return the columns of a leased row: due time, lease and number of hints."""
    return [
        Column("due_at", Moment, nullable=False, server_default=func.now()),
        Column("lease_token", Text),
        Column("lease_expires_at", Moment),
        Column("hints", BigInteger, nullable=False, server_default="0"),
    ]
