"""Keep since when a node says that its machine must be replaced."""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    op.execute("alter table nodes add column unhealthy_at double precision not null default 0")


def downgrade() -> None:
    """Without it an unhealthy machine is a member like any other."""
    op.execute("alter table nodes drop column unhealthy_at")
