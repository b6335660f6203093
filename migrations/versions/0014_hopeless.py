"""Keep whether a node's trainer met an error that no second try mends."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    op.execute("alter table nodes add column hopeless boolean not null default false")


def downgrade() -> None:
    """Without it such an error is tried again, as any other."""
    op.execute("alter table nodes drop column hopeless")
