"""Tables of the queue, of project quotas and limits, and of cores by region."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from contract.choices import Priority
from service.db.schema.columns import Moment, metadata, one_of
from service.domain.queue.admission import WaitReason

# One row per live job: queued, admitted, or paused and neither. A job without a row has never
# requested machines.
queue = Table(
    "queue",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("project_id", ForeignKey("projects.id"), nullable=False),
    Column("priority", Text, nullable=False),
    Column("gpus", Integer, nullable=False),  # of the whole gang, the most of its offerings
    Column("wants", JSONB, nullable=False),  # [[region, Spot cores of the gang], ...], best first
    Column("waits_since", Moment),
    Column("admitted_at", Moment),
    Column("region", Text, nullable=False, server_default=""),  # of its reserved cores ...
    Column("cores", Integer, nullable=False, server_default="0"),  # ... until it has an attempt
    Column("position", Integer),  # 1: the next one; null: not decided yet
    Column("code", Text, nullable=False, server_default=WaitReason.PENDING),
    Column("why", Text, nullable=False, server_default=""),
    one_of("priority", Priority),
    CheckConstraint("admitted_at is null or waits_since is null", name="waits_or_is_admitted"),
    Index("queue_waiting", "waits_since", postgresql_where=text("waits_since is not null")),
    Index("queue_admitted", "project_id", postgresql_where=text("admitted_at is not null")),
)

quotas = Table(  # a project without a row has the defaults of the settings
    "quotas",
    metadata,
    Column("project_id", ForeignKey("projects.id"), primary_key=True),
    Column("max_jobs", Integer),  # null: any number
    Column("max_gpus", Integer),
    Column("weight", Float, nullable=False, server_default="1"),
    CheckConstraint("max_jobs >= 0 and max_gpus >= 0", name="not_negative"),
    CheckConstraint("weight > 0", name="weight"),
)

project_limits = Table(  # null, and a project without a row: the domain's default
    "project_limits",
    metadata,
    Column("project_id", ForeignKey("projects.id"), primary_key=True),
    Column("live_jobs", BigInteger),
    Column("files", BigInteger),
    Column("bytes", BigInteger),
    Column("keys", BigInteger),
    CheckConstraint(
        "live_jobs >= 0 and files >= 0 and bytes >= 0 and keys >= 0", name="not_negative"
    ),
)

core_quotas = Table(
    "core_quotas",
    metadata,
    Column("region", Text, primary_key=True),
    Column("due_at", Moment, nullable=False),  # when the next replica may query
    Column("read_at", Moment),
    Column("cores", Integer),  # Spot cores that the subscription may use there; null: not known
    Column("others", Integer, nullable=False, server_default="0"),  # used by others than us
)

turns = Table(  # leases of work that one replica does for all
    "turns",
    metadata,
    Column("what", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("ends_at", Moment, nullable=False),
)
