"""What API keys may do, until when, and which key made them."""

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only. Keys that exist keep all that their project may do; later ones say it."""
    op.execute(
        """
        alter table api_keys
            add column scope text not null default 'operator'
                constraint api_keys_scope_check check (scope in ('read', 'write', 'operator')),
            add column expires_at timestamptz,
            add column created_by text
                constraint api_keys_created_by_fkey references api_keys (id)
        """
    )
    op.execute("alter table api_keys alter column scope set default 'write'")


def downgrade() -> None:
    """The release before lets every key do everything, for ever."""
    op.execute(
        "alter table api_keys drop column scope, drop column expires_at, drop column created_by"
    )
