"""Tokens that sign a browser in once: the console's link carries one."""

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only."""
    op.execute(
        """
        create table sign_in_tokens (
            sha256 bytea not null constraint sign_in_tokens_pkey primary key,
            project_id text not null
                constraint sign_in_tokens_project_id_fkey references projects (id),
            scope text not null
                constraint sign_in_tokens_scope_check
                check (scope in ('read', 'write', 'operator')),
            expires_at timestamptz not null,
            used_at timestamptz
        )
        """
    )


def downgrade() -> None:
    """Links that were not opened are lost."""
    op.execute("drop table sign_in_tokens")
