"""Limits of projects: jobs that are not over, files, bytes and API keys."""

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: a table that begins empty, and an index."""
    op.execute(
        """
        create table project_limits (
            project_id text constraint project_limits_pkey primary key
                constraint project_limits_project_id_fkey references projects (id),
            live_jobs bigint,
            files bigint,
            bytes bigint,
            keys bigint,
            constraint project_limits_not_negative_check
                check (live_jobs >= 0 and files >= 0 and bytes >= 0 and keys >= 0)
        )
        """
    )
    op.execute("create index jobs_live on jobs (project_id) where finished_at is null")


def downgrade() -> None:
    """The release before limits none of them."""
    op.execute("drop index jobs_live")
    op.execute("drop table project_limits")
