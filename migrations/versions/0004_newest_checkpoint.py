"""Add indexes for what a job's detail shows, and fill in what older jobs lack of it."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Where the newest generation has got to; the next heartbeat of a job that trains adds the rest.
PROGRESS = """
update jobs set progress = jsonb_build_object('step', m.step)
from (
    select distinct on (job_id) job_id, step from metrics
    order by job_id, generation desc, step desc
) m
where m.job_id = jobs.id and not jobs.progress ? 'step'
"""
TRAINED_TOKENS = """
update jobs set trained_tokens = (select sum(tokens) from metrics where job_id = jobs.id)
where trained_tokens is null and finished_at is not null
"""


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    op.execute(
        "create index checkpoints_newest on checkpoints (job_id, step desc, generation desc) "
        "where dropped_at is null"
    )
    op.execute(
        "create index events_about_help on events (job_id, seq) "
        "where code in ('attempt.needs_help', 'attempt.help_over')"
    )
    op.execute(PROGRESS)
    op.execute(TRAINED_TOKENS)


def downgrade() -> None:
    """Without them; what was filled in stays."""
    op.execute("drop index events_about_help")
    op.execute("drop index checkpoints_newest")
