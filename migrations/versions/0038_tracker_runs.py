"""Runs of jobs in experiment trackers: how far each tracker has come."""

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only."""
    op.execute(
        """
        create table tracker_runs (
            job_id text not null
                constraint tracker_runs_job_id_fkey references jobs (id),
            kind text not null
                constraint tracker_runs_kind_check
                check (kind in ('wandb', 'mlflow', 'tensorboard')),
            last_step integer not null default 0,
            url text,
            due_at timestamptz not null default now(),
            failing_since timestamptz,
            closed boolean not null default false,
            constraint tracker_runs_pkey primary key (job_id, kind)
        );
        create index tracker_runs_due on tracker_runs (due_at) where not closed
        """
    )


def downgrade() -> None:
    """Trackers keep what they have; nothing more is sent."""
    op.execute("drop table tracker_runs")
