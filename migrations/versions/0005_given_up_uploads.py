"""Keep uploads that were given up until their bytes are known to be gone."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    op.execute("alter table uploads add column given_up_at timestamptz")


def downgrade() -> None:
    """Without it; the release before deletes bytes that have no row."""
    op.execute("delete from uploads where given_up_at is not null")
    op.execute("alter table uploads drop column given_up_at")
