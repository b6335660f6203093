"""What the tables are made of."""

from collections.abc import Iterable

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    MetaData,
    Numeric,
    Text,
    func,
)

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


def one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    """CHECK that ``column`` holds one of the enum's values."""
    listed = ", ".join(f"'{v}'" for v in values)
    return CheckConstraint(f"{column} in ({listed})", name=column)


def leased() -> list[Column[object]]:
    """Columns of a row that a reconciler claims: when it is due, who has it, who hinted."""
    return [
        Column("due_at", Moment, nullable=False, server_default=func.now()),
        Column("lease_token", Text),
        Column("lease_expires_at", Moment),
        Column("hints", BigInteger, nullable=False, server_default="0"),
    ]
