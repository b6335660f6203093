"""Tables of what Azure reported: Spot market data with dates, and bills."""

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
    Column("due_at", Moment, nullable=False),  # when the next replica may query
    Column("told_at", Moment),  # when Azure last answered
    Column("trouble", Text, nullable=False, server_default=""),  # why it has failed since ...
    Column("trouble_at", Moment),  # ... and when it failed last
    Column("first_day", Date),  # first billed day ever queried, UTC
)

spot_bands = Table(  # a row for each change
    "spot_bands",
    metadata,
    Column("region", Text, nullable=False),
    Column("vm_size", Text, nullable=False),
    Column("since", Moment, nullable=False),  # when Azure first reported it ...
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
    Column("at", Moment, nullable=False),  # start of validity
    Column("hourly", Money, nullable=False),
    Column("seen_at", Moment, nullable=False),
    PrimaryKeyConstraint("region", "vm_size", "at"),
    CheckConstraint("hourly >= 0", name="not_negative"),
)

spot_scores = Table(  # the newest of each Spot pool; scores hold for a moment
    "spot_scores",
    metadata,
    Column("region", Text, nullable=False),
    Column("vm_size", Text, nullable=False),
    Column("score", Text, nullable=False),
    Column("machines", Integer, nullable=False),  # requested together
    Column("since", Moment, nullable=False),  # start of the unbroken run of this score
    Column("seen_at", Moment, nullable=False),
    PrimaryKeyConstraint("region", "vm_size"),
    one_of("score", [score.value for score in PlacementScore]),
    CheckConstraint("machines > 0", name="machines"),
)

bills = Table(  # the newest report of each day
    "bills",
    metadata,
    Column("day", Date, nullable=False),  # UTC
    Column("attempt_id", Text, nullable=False),  # from the tag; may be unknown to us
    Column("category", Text, nullable=False),  # of the meter, as Azure names it
    Column("quantity", Numeric(18, 6), nullable=False),  # hours, where it is machines
    Column("amount", Money, nullable=False),
    Column("seen_at", Moment, nullable=False),
    PrimaryKeyConstraint("day", "attempt_id", "category"),
)
