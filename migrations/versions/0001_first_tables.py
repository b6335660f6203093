"""Create the first tables: the SQL beside this file."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    *("ledger", "metrics", "checkpoints", "events", "nodes", "generations"),
    *("attempts", "jobs", "files", "api_keys", "projects"),
)


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    for statement in Path(__file__).with_suffix(".sql").read_text().split(";\n"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    """Back to nothing."""
    for table in TABLES:
        op.execute(f"drop table {table}")
