"""Keep what the nodes of an attempt are told to save by."""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the release before saves as planned."""
    op.execute("alter table attempts add column cadence jsonb")


def downgrade() -> None:
    """It is told anew."""
    op.execute("alter table attempts drop column cadence")
