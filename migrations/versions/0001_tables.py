"""Create the tables: the SQL beside this file."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table with its indexes."""
    for statement in Path(__file__).with_suffix(".sql").read_text().split(";\n"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    """Refuse: the first release has none before it."""
    raise NotImplementedError("nothing comes before the first tables; drop the database instead")
