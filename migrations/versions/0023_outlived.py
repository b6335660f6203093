"""Date the evictions that an attempt outlives."""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: of what the release before counts the date is not known, so there are fewer."""
    op.execute("alter table attempts add column outlived timestamptz[] not null default '{}'")
    op.execute(
        "alter table attempts add constraint attempts_outlived_is_counted_check"
        " check (cardinality(outlived) <= survived)"
    )


def downgrade() -> None:
    """How many there were stays."""
    op.execute("alter table attempts drop column outlived")
