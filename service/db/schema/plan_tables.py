"""Table of plans that were made before a job is created."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from service.db.schema.columns import Moment, metadata

plans = Table(
    "plans",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", ForeignKey("projects.id"), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    Column("model", Text, nullable=False),  # the full name
    Column("request", JSONB, nullable=False),  # for a job, without its plan
    Column("plan", JSONB, nullable=False),
    CheckConstraint("expires_at > created_at", name="expiry"),
)
