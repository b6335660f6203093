"""All tables; their constraints state the invariants, as the last line of defence."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from contract.choices import Engine, Scope
from service.db.schema import (  # noqa: F401 - one schema
    cloud_tables,
    columns,
    file_tables,
    market_tables,
    plan_tables,
    queue_tables,
    shortage_tables,
    storage_tables,
    tracker_tables,
)
from service.db.schema.columns import Moment, Money, lease_columns, one_of, partial_index
from service.domain.states import AttemptState, CapacityType, JobState, Outcome
from trainer.contract import DirectiveKind, NodePhase

metadata = columns.metadata

projects = Table(
    "projects",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created_at", Moment, nullable=False),
    Column("budget", Money),  # of all its jobs together, counted ...
    Column("budget_since", Moment),  # ... from this time on
    Column("budget_set_at", Moment),  # last change: jobs that stopped before are checked again
    Column("budget_told", Integer, nullable=False, server_default="0"),  # per cent, see domain
    CheckConstraint("(budget is null) = (budget_since is null)", name="budget_counts_from"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", ForeignKey("projects.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("sha256", LargeBinary, nullable=False, unique=True),  # the key itself is never stored
    Column("hint", Text, nullable=False),  # its last four characters
    Column("created_at", Moment, nullable=False),
    Column("revoked_at", Moment),
    Column("last_used_at", Moment),  # to within a minute
    Column("scope", Text, nullable=False, server_default=Scope.WRITE),
    Column("expires_at", Moment),
    Column("created_by", ForeignKey("api_keys.id")),  # null: with the service's own command
    one_of("scope", Scope),
    Index("api_keys_listing", "project_id", "id"),
)

sign_in_tokens = Table(  # for links to the console; each grants one key
    "sign_in_tokens",
    metadata,
    Column("sha256", LargeBinary, primary_key=True),  # the token itself is never stored
    Column("project_id", ForeignKey("projects.id"), nullable=False),
    Column("scope", Text, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Column("used_at", Moment),
    one_of("scope", Scope),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", ForeignKey("projects.id"), nullable=False),
    Column("api_key_id", ForeignKey("api_keys.id"), nullable=False),
    Column("idempotency_key", Text),
    Column("body_sha256", Text, nullable=False),
    Column("request", JSONB, nullable=False),  # as the user sent it, parsed
    Column("model", Text, nullable=False),
    Column("training_file", ForeignKey("files.id"), nullable=False),
    Column("validation_file", ForeignKey("files.id")),
    Column("plan", JSONB, nullable=False),
    Column("run_spec_sha256", Text),
    Column("inputs", JSONB, nullable=False, server_default="[]"),  # blobs that nodes may read
    Column("total_steps", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("since", Moment, nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    Column("error", JSONB),
    Column("created_at", Moment, nullable=False),
    Column("started_at", Moment),  # first training step
    Column("finished_at", Moment),
    Column("cancel_requested_at", Moment),
    Column("pause_requested_at", Moment),
    Column("trainer_errors", Integer, nullable=False, server_default="0"),
    Column("result", JSONB),  # HEAD's entry of the final model
    Column("version", BigInteger, nullable=False, server_default="1"),  # grows with every change
    Column("updated_at", Moment, nullable=False, server_default=func.now()),
    Column("progress", JSONB, nullable=False, server_default="{}"),  # from the newest metrics
    Column("lost_steps", Integer, nullable=False, server_default="0"),  # done, then done again
    Column("trained_tokens", BigInteger),  # once the job is over
    Column("result_file", ForeignKey("files.id")),  # the metrics as CSV
    Column("collected_generation", Integer, nullable=False, server_default="0"),  # see retention
    Column("events_pruned", Boolean, nullable=False, server_default="false"),  # events were deleted
    Column("metrics_pruned", Boolean, nullable=False, server_default="false"),
    Column("terms", JSONB, nullable=False, server_default="{}"),  # domain/lifecycle/constraints.py
    Column("over_budget_at", Moment),  # since when its or its project's budget is exhausted ...
    Column("over_budget_because", Text, nullable=False, server_default=""),  # ... with the reason
    Column("budget_told", Integer, nullable=False, server_default="0"),  # per cent, see domain
    Column("at_risk_at", Moment),  # since when Spot would miss the deadline
    Column("moves_since", Moment),  # since when it moves from Spot to on demand ...
    Column("returns_since", Moment),  # ... or from on demand back to Spot
    Column("waits_for", Text, nullable=False, server_default=""),  # why no attempt starts now ...
    Column("asks_again_at", Moment),  # ... and the time of the next try
    *lease_columns(),
    one_of("state", JobState),
    CheckConstraint(
        "(state in ('succeeded', 'failed', 'cancelled')) = (finished_at is not null)",
        name="finished_is_dated",
    ),
    CheckConstraint("(state = 'succeeded') <= (result is not null)", name="success_has_a_model"),
    CheckConstraint("(state = 'failed') <= (error is not null)", name="failure_has_a_reason"),
    Index("jobs_listing", "project_id", "id"),
    partial_index("jobs_due", "due_at", where="state not in ('succeeded', 'failed', 'cancelled')"),
    partial_index("jobs_live", "project_id", where="finished_at is null"),
    partial_index("jobs_uncollected", "id", where="collected_generation < 2147483647"),
    Index(
        "jobs_one_per_idempotency_key",
        "project_id",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key is not null"),
    ),
    partial_index("jobs_result_file", "result_file", where="result_file is not null"),
    partial_index(  # models to register
        "jobs_to_register", "id", where="""request @> '{"register_model": true}'"""
    ),
    *(
        partial_index(
            f"jobs_with_{kind}",
            "finished_at",
            where=f"finished_at is not null and not {kind}_pruned",
        )
        for kind in ("events", "metrics")
    ),
)

_OFFERING_INDEX_COLUMNS = ("region", "vm_size", "capacity_type", "engine", "created_at")

attempts = Table(
    "attempts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("region", Text, nullable=False),
    Column("vm_size", Text, nullable=False),
    Column("capacity_type", Text, nullable=False),
    Column("engine", Text, nullable=False, server_default=Engine.SCALE_SET),
    Column("hourly", Money, nullable=False),  # of one instance, as bought
    Column("on_demand_hourly", Money, nullable=False),
    Column("instance_count", Integer, nullable=False),
    Column("processes_per_node", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("since", Moment, nullable=False),
    Column("outcome", Text),
    Column("reason", Text, nullable=False, server_default=""),
    Column("refusals", Integer, nullable=False, server_default="0"),  # in a row, before this one
    Column("duds", Integer, nullable=False, server_default="0"),  # likewise, never trained
    Column("ran_at", Moment),  # first training step
    Column("vm_ids", JSONB, nullable=False, server_default="[]"),  # running, as last seen in ARM
    Column("evicted_noticed", Integer, nullable=False, server_default="0"),  # machines
    Column("evicted_unnoticed", Integer, nullable=False, server_default="0"),
    Column("survived", Integer, nullable=False, server_default="0"),  # evictions that it outlived
    Column("outlived", ARRAY(Moment), nullable=False, server_default="{}"),  # times; not old ones
    Column("refills", Integer, nullable=False, server_default="0"),  # requests with no arrival yet
    Column("refilled_at", Moment),  # time of the last request for replacement machines
    Column("seen_at", Moment),  # when its scale set was last read with its instances
    Column("stop_by", Moment),  # nodes without contact train until then; null: all the outage
    Column("access_until", Moment),  # expiry of the nodes' access policy; null: none
    Column("deferred_call", Text),  # cloud call with tokens taken: domain/cloud/rate_limit.py
    Column("deferred_until", Moment),  # when that call may be made
    Column("created_at", Moment, nullable=False),
    Column("over_at", Moment),  # when the outcome was known; null if an old release wrote it
    Column("ended_at", Moment),
    *lease_columns(),
    UniqueConstraint("job_id", "number"),
    one_of("state", AttemptState),
    one_of("outcome", Outcome),
    one_of("capacity_type", CapacityType),
    one_of("engine", Engine),
    CheckConstraint(
        "(state in ('terminating', 'ended')) = (outcome is not null)", name="outcome_known"
    ),
    CheckConstraint("(state = 'ended') = (ended_at is not null)", name="end_is_dated"),
    CheckConstraint("cardinality(outlived) <= survived", name="outlived_is_counted"),
    CheckConstraint("(deferred_call is null) = (deferred_until is null)", name="deferral_is_dated"),
    Index(
        "attempts_one_live_per_job",
        "job_id",
        unique=True,
        postgresql_where=text("state not in ('terminating', 'ended')"),
    ),
    partial_index("attempts_due", "due_at", where="state <> 'ended'"),
    Index("attempts_ended", "ended_at"),
    partial_index(  # policies to be revoked
        "attempts_access", "job_id", where="state = 'ended' and access_until is not null"
    ),
    partial_index("attempts_evicted", "over_at", where="outcome = 'evicted'"),
    partial_index("attempts_lives", *_OFFERING_INDEX_COLUMNS, where="ran_at is not null"),
    partial_index("attempts_refusals", *_OFFERING_INDEX_COLUMNS, where="outcome = 'no_capacity'"),
    partial_index(  # moves back to Spot, and pauses
        "attempts_left",
        "created_at",
        where="capacity_type = 'on_demand' and outcome = 'paused'",
    ),
)

generations = Table(
    "generations",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("number", Integer, nullable=False),  # grows within a job; HEAD is fenced with it
    Column("attempt_id", ForeignKey("attempts.id"), nullable=False, index=True),
    Column("content", JSONB, nullable=False),  # trainer.contract.Generation; never updated
    Column("opened_at", Moment, nullable=False),
    Column("halt_kind", Text),
    Column("halt_reason", Text),
    Column("halted_at", Moment),
    Column("lost_steps", Integer, nullable=False, server_default="0"),  # of the one before it
    PrimaryKeyConstraint("job_id", "number"),
    CheckConstraint("number > 0", name="numbers_start_at_one"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("attempt_id", ForeignKey("attempts.id"), nullable=False),
    Column("vm_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("heartbeat_seq", Integer, nullable=False, server_default="0"),
    Column("phase", Text, nullable=False),
    Column("generation", Integer, nullable=False, server_default="0"),
    Column("step", Integer, nullable=False, server_default="0"),
    Column("free_port", Integer, nullable=False, server_default="0"),
    Column("evicting", Boolean, nullable=False, server_default="false"),
    Column("restarted_in", Integer, nullable=False, server_default="0"),
    Column("directive_seq", Integer, nullable=False, server_default="0"),
    Column("directive_kind", Text, nullable=False, server_default="carry_on"),
    Column("directive_number", Integer, nullable=False, server_default="0"),
    Column("registered_at", Moment, nullable=False),
    Column("heard_at", Moment, nullable=False),
    Column("spans", JSONB, nullable=False, server_default="[]"),
    Column("error", Text, nullable=False, server_default=""),
    Column("out_of_memory", Boolean, nullable=False, server_default="false"),
    Column("non_retryable", Boolean, nullable=False, server_default="false"),
    Column("unhealthy_at", Float, nullable=False, server_default="0"),  # unix seconds; 0: never
    UniqueConstraint("attempt_id", "vm_id"),  # a repeated registration is one node
    one_of("phase", NodePhase),
    one_of("directive_kind", DirectiveKind),
    postgresql_with={"fillfactor": 70},  # room for heartbeats to update rows in place
)

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("attempt_id", ForeignKey("attempts.id")),
    Column("at", Moment, nullable=False),
    Column("level", Text, nullable=False),
    Column("code", Text, nullable=False),  # e.g. attempt.running, checkpoint.committed
    Column("message", Text, nullable=False),
    Column("data", JSONB),
    one_of("level", ("info", "warn", "error")),
    Index("events_of_job", "job_id", "seq"),
    partial_index(
        "events_about_help",
        "job_id",
        "seq",
        where="code in ('attempt.needs_help', 'attempt.help_over')",
    ),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("path", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("committed_at", Moment, nullable=False),
    Column("dropped_at", Moment),  # when HEAD stopped naming it
    Column("broken_because", Text),  # the next generation removes it from HEAD
    Column("kept_as", Text, nullable=False, server_default="recent"),
    Column("manifest_sha256", Text, nullable=False),  # as first read from HEAD
    UniqueConstraint("job_id", "path"),
    one_of("kept_as", ("recent", "best", "milestone")),
    Index("checkpoints_of_job", "job_id", "id"),
    Index(
        "checkpoints_newest",
        "job_id",
        text("step desc"),
        text("generation desc"),
        postgresql_where=text("dropped_at is null"),
    ),
)

findings = Table(  # nodes' reports, per generation, of checkpoints they could not load
    "findings",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("path", Text, nullable=False),
    Column("node_id", ForeignKey("nodes.id"), nullable=False),
    Column("attempt_id", ForeignKey("attempts.id"), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("file", Text, nullable=False),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("job_id", "path", "node_id", "generation"),
)

metrics = Table(
    "metrics",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("step", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("loss", Float, nullable=False),
    Column("learning_rate", Float, nullable=False),
    Column("grad_norm", Float, nullable=False),
    Column("accuracy", Float, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("valid_loss", Float),
    Column("margin", Float),  # of rewards, with pairs only
    Column("reward", Float),  # these three with reinforcement only
    Column("kl", Float),
    Column("answer_tokens", Float),
    Column("grader_errors", Integer, nullable=False, server_default="0"),
    Column("loss_scale", Float),  # with fp16 only
    Column("mfu", Float),
    Column("peak_memory", BigInteger),
    Column("slowest_rank", Integer),
    Column("slowest_ratio", Float),
    Column("spike", Float),
    Column("skipped", Boolean, nullable=False, server_default="false"),
    PrimaryKeyConstraint("job_id", "step"),
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("attempt_id", ForeignKey("attempts.id"), nullable=False),
    Column("vm_id", Text, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("hourly", Money, nullable=False),
    Column("on_demand_hourly", Money, nullable=False),
    CheckConstraint("ended_at >= started_at", name="time_runs_forward"),
    Index("ledger_of_attempt", "attempt_id", "vm_id"),
    Index(
        "ledger_one_open_row_per_machine",
        "attempt_id",
        "vm_id",
        unique=True,
        postgresql_where=text("ended_at is null"),
    ),
)
