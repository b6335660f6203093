"""Plans that were made before a job is created, until they expire."""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: a table that begins empty."""
    op.execute(
        """
        create table plans (
            id text constraint plans_pkey primary key,
            project_id text not null
                constraint plans_project_id_fkey references projects (id),
            created_at timestamptz not null,
            expires_at timestamptz not null,
            model text not null,
            request jsonb not null,
            plan jsonb not null,
            constraint plans_expiry_check check (expires_at > created_at)
        )
        """
    )
    op.execute("create index plans_expires_at on plans (expires_at)")


def downgrade() -> None:
    """The release before stores no plans."""
    op.execute("drop table plans")
