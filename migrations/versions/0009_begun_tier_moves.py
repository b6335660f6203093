"""Remember when a move to another tier gave its first order: before it, nothing is paid."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the release before must run on this schema too.

    What is under way may have given orders already: it stays charged as it was asked for.
    """
    op.execute("alter table tier_moves add column begun_at timestamptz")
    op.execute("update tier_moves set begun_at = asked_at where ended_at is null")


def downgrade() -> None:
    """Without it."""
    op.execute("alter table tier_moves drop column begun_at")
