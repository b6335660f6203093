"""Add what elastic jobs need: when machines were asked for again, and what an attempt outlived."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COLUMNS = (
    ("refills", "integer not null default 0"),
    ("refilled_at", "timestamptz"),
    ("survived", "integer not null default 0"),
)


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    for column, kind in COLUMNS:
        op.execute(f"alter table attempts add column {column} {kind}")


def downgrade() -> None:
    """Without them; an elastic job that runs then goes on as one that keeps its world size."""
    for column, _ in COLUMNS:
        op.execute(f"alter table attempts drop column {column}")
