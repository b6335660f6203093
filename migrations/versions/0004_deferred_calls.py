"""Add attempts.deferred_call and deferred_until: a call to the cloud that waits for its tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
CHECK = "deferral_is_dated"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("attempts", sa.Column("deferred_call", sa.Text))
    op.add_column("attempts", sa.Column("deferred_until", sa.DateTime(timezone=True)))
    dated = "(deferred_call is null) = (deferred_until is null)"
    op.create_check_constraint(op.f(f"attempts_{CHECK}_check"), "attempts", dated)


def downgrade() -> None:
    """Drop them."""
    op.drop_constraint(op.f(f"attempts_{CHECK}_check"), "attempts")
    op.drop_column("attempts", "deferred_until")
    op.drop_column("attempts", "deferred_call")
