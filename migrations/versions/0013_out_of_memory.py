"""Keep whether memory ran out on a node while its generation trained."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    op.execute("alter table nodes add column out_of_memory boolean not null default false")


def downgrade() -> None:
    """Without it; a generation that memory ran out in counts as a trainer's error."""
    op.execute("alter table nodes drop column out_of_memory")
