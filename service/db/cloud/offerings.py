"""An offering as columns of a row."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, FromClause, tuple_

from contract.choices import Engine
from service.domain.cloud.fleet import Offering
from service.domain.states import CapacityType

NAMES = ("region", "vm_size", "capacity_type", "engine")


def pool(table: str) -> str:
    """SQL of where such a row's cores are counted, as `service.domain.cloud.fleet.pool` has it."""
    region, engine = f"{table}.region", f"{table}.engine"
    return f"case {engine} when 'scale_set' then {region} else {region} || '/' || {engine} end"


def columns(table: FromClause) -> list[ColumnElement[str]]:
    """The table's columns that name an offering."""
    return [table.c[name] for name in NAMES]


def values(offering: Offering) -> tuple[str, ...]:
    """What those columns hold for this offering."""
    return tuple(str(getattr(offering, name)) for name in NAMES)


def of(row: Any) -> Offering:  # noqa: ANN401 - a row
    """The offering that this row is of."""
    return Offering(
        region=row.region,
        vm_size=row.vm_size,
        capacity_type=CapacityType(row.capacity_type),
        engine=Engine(row.engine),
    )


def among(table: FromClause, offerings: Iterable[Offering]) -> ColumnElement[bool]:
    """Rows of the table that are of one of these."""
    return tuple_(*columns(table)).in_(sorted({values(o) for o in offerings}))
