"""Drop attempts.cadence: the checkpoint interval is fixed for each generation."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the column."""
    op.drop_column("attempts", "cadence")


def downgrade() -> None:
    """Add it again, empty."""
    op.add_column("attempts", sa.Column("cadence", JSONB))
