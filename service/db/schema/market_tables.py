"""The tables of what Azure told: of its Spot market, with dates, and of its bill."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Date,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from service.db.schema.columns import Moment, Money, metadata, one_of
from service.domain.spot.market import EvictionBand, PlacementScore

market_looks = Table(  # and prices that jumped (service/db/money/price_doubts.py)
    "market_looks",
    metadata,
    Column("what", Text, primary_key=True),
    Column("due_at", Moment, nullable=False),  # whoever comes then asks, and nobody else
    Column("told_at", Moment),  # when Azure last answered
    Column("trouble", Text, nullable=False, server_default=""),  # why it did not since ...
    Column("trouble_at", Moment),  # ... when it was asked last
    Column("first_day", Date),  # (UTC) of the bill that it was ever asked of
)

spot_bands = Table(  # a row for each change
    "spot_bands",
    metadata,
    Column("region", Text, nullable=False),
    Column("vm_size", Text, nullable=False),
    Column("since", Moment, nullable=False),  # when Azure was first heard to say so ...
    Column("seen_at", Moment, nullable=False),  # ... and when last
    Column("band", Text, nullable=False),
    PrimaryKeyConstraint("region", "vm_size", "since"),
    one_of("band", [band.value for band in EvictionBand]),
)

spot_prices = Table(
    "spot_prices",
    metadata,
    Column("region", Text, nullable=False),
    Column("vm_size", Text, nullable=False),
    Column("at", Moment, nullable=False),  # from when on it held
    Column("hourly", Money, nullable=False),
    Column("seen_at", Moment, nullable=False),
    PrimaryKeyConstraint("region", "vm_size", "at"),
    CheckConstraint("hourly >= 0", name="not_negative"),
)

spot_scores = Table(  # the last of each place; how Azure scores is of the moment
    "spot_scores",
    metadata,
    Column("region", Text, nullable=False),
    Column("vm_size", Text, nullable=False),
    Column("score", Text, nullable=False),
    Column("machines", Integer, nullable=False),  # that were asked about together
    Column("since", Moment, nullable=False),  # it has said so without a break
    Column("seen_at", Moment, nullable=False),
    PrimaryKeyConstraint("region", "vm_size"),
    one_of("score", [score.value for score in PlacementScore]),
    CheckConstraint("machines > 0", name="machines"),
)

bills = Table(  # what Azure told last of each day
    "bills",
    metadata,
    Column("day", Date, nullable=False),  # UTC
    Column("attempt_id", Text, nullable=False),  # by the tag, whoever's it is
    Column("category", Text, nullable=False),  # of the meter, as Azure names it
    Column("quantity", Numeric(18, 6), nullable=False),  # hours, where it is machines
    Column("amount", Money, nullable=False),
    Column("seen_at", Moment, nullable=False),
    PrimaryKeyConstraint("day", "attempt_id", "category"),
)
