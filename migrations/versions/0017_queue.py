"""Queue jobs: priorities, quotas of projects, and the Spot cores of regions."""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_CHANGES = (
    "create table queue ("
    " job_id text not null constraint queue_pkey primary key"
    " constraint queue_job_id_fkey references jobs,"
    " project_id text not null constraint queue_project_id_fkey references projects,"
    " priority text not null constraint queue_priority_check"
    " check (priority in ('low', 'normal', 'high')),"
    " gpus integer not null, wants jsonb not null,"
    " waits_since timestamptz, admitted_at timestamptz,"
    " region text not null default '', cores integer not null default 0,"
    " position integer, code text not null default 'about_to_be_looked_at',"
    " why text not null default '',"
    " constraint queue_waits_or_is_admitted_check"
    " check (admitted_at is null or waits_since is null))",
    "create index queue_waiting on queue (waits_since) where waits_since is not null",
    "create index queue_admitted on queue (project_id) where admitted_at is not null",
    "create table quotas ("
    " project_id text not null constraint quotas_pkey primary key"
    " constraint quotas_project_id_fkey references projects,"
    " max_jobs integer, max_gpus integer, weight double precision not null default 1,"
    " constraint quotas_not_negative_check check (max_jobs >= 0 and max_gpus >= 0),"
    " constraint quotas_weight_check check (weight > 0))",
    "create table core_quotas ("
    " region text not null constraint core_quotas_pkey primary key,"
    " due_at timestamptz not null, read_at timestamptz,"
    " cores integer, others integer not null default 0)",
    "create table turns ("
    " what text not null constraint turns_pkey primary key,"
    " holder text not null, ends_at timestamptz not null)",
)
_BACK = ("drop table turns", "drop table core_quotas", "drop table quotas", "drop table queue")


def upgrade() -> None:
    """Expand only: the release before runs its jobs without a row here, and they are adopted."""
    for change in _CHANGES:
        op.execute(change)


def downgrade() -> None:
    """Without a queue every job asks for machines at once."""
    for change in _BACK:
        op.execute(change)
