"""What the tables are made of."""

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
    """``column`` holds one of ``values``: one statement however many they are, as IN has not."""
    return column == any_(literal(list(values), ARRAY(Text)))


def one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    """CHECK that ``column`` holds one of the enum's values."""
    listed = ", ".join(f"'{v}'" for v in values)
    return CheckConstraint(f"{column} in ({listed})", name=column)


def partial_index(name: str, *columns: str, where: str) -> Index:
    """An index of those rows alone; a query says ``where`` in the same words."""
    return Index(name, *columns, postgresql_where=text(where))


def leased() -> list[Column[object]]:
    """Columns of a row that a reconciler claims: when it is due, who has it, who hinted."""
    return [
        Column("due_at", Moment, nullable=False, server_default=func.now()),
        Column("lease_token", Text),
        Column("lease_expires_at", Moment),
        Column("hints", BigInteger, nullable=False, server_default="0"),
    ]
