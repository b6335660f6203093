"""Map an offering to columns of a row, and back."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, FromClause, tuple_

from contract.choices import Engine
from service.domain.cloud.fleet import Offering
from service.domain.states import CapacityType

NAMES = ("region", "vm_size", "capacity_type", "engine")


def pool(table: str) -> str:
    """Return SQL for the pool that counts a row's cores, as `service.domain.cloud.fleet.pool`."""
    region, engine = f"{table}.region", f"{table}.engine"
    return f"case {engine} when 'scale_set' then {region} else {region} || '/' || {engine} end"


def columns(table: FromClause) -> list[ColumnElement[str]]:
    """Return the table's columns that name an offering."""
    return [table.c[name] for name in NAMES]


def values(offering: Offering) -> tuple[str, ...]:
    """Return the offering's values of the columns in ``NAMES``."""
    return tuple(str(getattr(offering, name)) for name in NAMES)


def of(row: Any) -> Offering:  # noqa: ANN401 - a row
    """Return the offering that a row names."""
    return Offering(
        region=row.region,
        vm_size=row.vm_size,
        capacity_type=CapacityType(row.capacity_type),
        engine=Engine(row.engine),
    )


def among(table: FromClause, offerings: Iterable[Offering]) -> ColumnElement[bool]:
    """Return the condition that a row of the table names one of the offerings."""
    return tuple_(*columns(table)).in_(sorted({values(o) for o in offerings}))
