"""Add what stored bytes cost, and folders on their way to another tier."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

LEASE = """
    due_at timestamptz not null default now(),
    lease_token text,
    lease_expires_at timestamptz,
    hints bigint not null default 0
"""
TIERS = "('hot', 'cool', 'cold', 'archive')"
METERS = f"""
create table storage_meters (
    id text not null constraint storage_meters_pkey primary key
        constraint storage_meters_id_fkey references jobs (id),
    began_at timestamptz not null,
    looked_at timestamptz,
    {LEASE}
)
"""
LEDGER = f"""
create table storage_ledger (
    id bigserial constraint storage_ledger_pkey primary key,
    job_id text not null constraint storage_ledger_job_id_fkey references jobs (id),
    tier text not null constraint storage_ledger_tier_check check (tier in {TIERS}),
    size bigint not null constraint storage_ledger_holds_something_check check (size > 0),
    month numeric(14, 6) not null,
    started_at timestamptz not null,
    ended_at timestamptz
        constraint storage_ledger_time_runs_forward_check check (ended_at >= started_at)
)
"""
MOVES = f"""
create table tier_moves (
    id text not null constraint tier_moves_pkey primary key,
    job_id text not null constraint tier_moves_job_id_fkey references jobs (id),
    checkpoint_id text constraint tier_moves_checkpoint_id_fkey references checkpoints (id),
    path text not null,
    tier text not null constraint tier_moves_tier_check check (tier in {TIERS}),
    priority text not null
        constraint tier_moves_priority_check check (priority in ('standard', 'high')),
    charge numeric(14, 6) not null,
    asked_at timestamptz not null,
    expected_at timestamptz,
    ended_at timestamptz,
    outcome text
        constraint tier_moves_outcome_check check (outcome in ('done', 'gone', 'replaced')),
    constraint tier_moves_end_has_an_outcome_check
        check ((ended_at is null) = (outcome is null)),
    {LEASE}
)
"""
INDEXES = (
    "create index storage_meters_due on storage_meters (due_at)",
    "create index storage_ledger_job_id on storage_ledger (job_id)",
    "create unique index storage_ledger_one_open_row_per_tier on storage_ledger (job_id, tier) "
    "where ended_at is null",
    "create index tier_moves_job_id on tier_moves (job_id)",
    "create unique index tier_moves_one_open_per_folder on tier_moves (job_id, path) "
    "where ended_at is null",
    "create index tier_moves_due on tier_moves (due_at) where ended_at is null",
)
# What earlier jobs left behind is billed from now on: nobody knows what it has cost.
OLDER = """
insert into storage_meters (id, began_at)
select id, now() from jobs where run_spec_sha256 is not null
"""


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    for statement in (METERS, LEDGER, MOVES, *INDEXES, OLDER):
        op.execute(statement)


def downgrade() -> None:
    """Without them; what was moved stays where it is in Blob."""
    for table in ("tier_moves", "storage_ledger", "storage_meters"):
        op.execute(f"drop table {table}")
