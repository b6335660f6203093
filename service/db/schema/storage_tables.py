"""Tables of stored bytes: their cost, moves between tiers, checks of data files."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from service.db.schema.columns import Moment, Money, lease_columns, metadata, one_of
from service.domain.storage.access_tiers import AccessTier, ArchivePriority, TierMoveOutcome

storage_meters = Table(  # a row per container of a job, from when it exists
    "storage_meters",
    metadata,
    Column("id", ForeignKey("jobs.id"), primary_key=True),
    Column("began_at", Moment, nullable=False),
    Column("looked_at", Moment),
    *lease_columns(),
    Index("storage_meters_due", "due_at"),
)

storage_ledger = Table(
    "storage_ledger",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("tier", Text, nullable=False),
    Column("size", BigInteger, nullable=False),  # billed bytes
    Column("month", Money, nullable=False),  # the price of a GiB
    Column("started_at", Moment, nullable=False),
    Column("ended_at", Moment),
    one_of("tier", AccessTier),
    CheckConstraint("ended_at >= started_at", name="time_runs_forward"),
    CheckConstraint("size > 0", name="holds_something"),
    Index(
        "storage_ledger_one_open_row_per_tier",
        "job_id",
        "tier",
        unique=True,
        postgresql_where=text("ended_at is null"),
    ),
    Index("storage_ledger_ended", "ended_at"),
)

tier_moves = Table(  # intents to move a folder to another tier
    "tier_moves",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("checkpoint_id", ForeignKey("checkpoints.id")),  # null: the final model
    Column("path", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("priority", Text, nullable=False),  # of the rehydration
    Column("charge", Money, nullable=False),  # paid once, as shown to the user
    Column("asked_at", Moment, nullable=False),
    Column("expected_at", Moment),  # a rehydration's end
    Column("begun_at", Moment),  # since when Blob may have received orders
    Column("ended_at", Moment),
    Column("outcome", Text),
    *lease_columns(),
    one_of("tier", AccessTier),
    one_of("priority", ArchivePriority),
    one_of("outcome", TierMoveOutcome),
    CheckConstraint("(ended_at is null) = (outcome is null)", name="end_has_an_outcome"),
    Index(
        "tier_moves_one_open_per_folder",
        "job_id",
        "path",
        unique=True,
        postgresql_where=text("ended_at is null"),
    ),
    Index("tier_moves_asked", "asked_at"),
    Index("tier_moves_due", "due_at", postgresql_where=text("ended_at is null")),
)

preflights = Table(  # checks of data files; the key covers all inputs of the report
    "preflights",
    metadata,
    Column("key", Text, primary_key=True),
    Column("touched_at", Moment, nullable=False, index=True),
    Column("rows_done", BigInteger, nullable=False, server_default="0"),
    Column("report", JSONB(none_as_null=True)),  # null: running or refused
    Column("refusal", JSONB(none_as_null=True)),
    CheckConstraint("report is null or refusal is null", name="one_outcome"),
)
