"""When a job that waits for machines asks for them again, beside why it waits."""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: null means that nobody can say.

    Beside a sentence of the release before the moment may be an older one; the first look mends it.
    """
    op.execute("alter table jobs add column asks_again_at timestamptz")


def downgrade() -> None:
    """The sentence of the release before names the moment as well."""
    op.execute("alter table jobs drop column asks_again_at")
