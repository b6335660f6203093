"""Table of offerings that recently had no capacity."""

from sqlalchemy import CheckConstraint, Column, Integer, PrimaryKeyConstraint, Table, Text

from service.db.schema.columns import Moment, metadata

shortages = Table(  # shared by all jobs and replicas
    "shortages",
    metadata,
    Column("region", Text, nullable=False),
    Column("vm_size", Text, nullable=False),
    Column("capacity_type", Text, nullable=False),
    Column("engine", Text, nullable=False, server_default="scale_set"),
    Column("since", Moment, nullable=False),  # of the first refusal in the row
    Column("ends_at", Moment, nullable=False),  # no request before
    Column("in_a_row", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    # No request for this many or more machines.
    Column("nodes", Integer, nullable=False, server_default="1"),
    PrimaryKeyConstraint("region", "vm_size", "capacity_type", "engine"),
    CheckConstraint("in_a_row > 0", name="in_a_row"),
    CheckConstraint("nodes > 0", name="nodes"),
)
