"""Table of runs in experiment trackers."""

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    func,
)

from service.db.schema.columns import Moment, metadata, one_of, partial_index

KINDS = ("wandb", "mlflow", "tensorboard")

tracker_runs = Table(
    "tracker_runs",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("last_step", Integer, nullable=False, server_default="0"),  # that the tracker has
    Column("url", Text),  # of the run, once there is one
    Column("due_at", Moment, nullable=False, server_default=func.now()),
    Column("failing_since", Moment),
    Column("closed", Boolean, nullable=False, server_default="false"),
    PrimaryKeyConstraint("job_id", "kind"),
    one_of("kind", KINDS),
    partial_index("tracker_runs_due", "due_at", where="not closed"),
)
