"""Rename nodes.hopeless to non_retryable, as the heartbeat's member is called."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rename the column."""
    op.alter_column("nodes", "hopeless", new_column_name="non_retryable")


def downgrade() -> None:
    """Name it as before."""
    op.alter_column("nodes", "non_retryable", new_column_name="hopeless")
