"""Keep what the rows of a file are, and the margin of a step's pairs."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the release before must run on this schema too.

    It knows chats only, so what it writes (and has written) is of that format, and has no margin.
    """
    op.execute(
        "alter table files add column format text not null default 'chat' "
        "constraint files_format_check check (format in ('chat', 'preference'))"
    )
    op.execute("alter table metrics add column margin double precision")


def downgrade() -> None:
    """Without them; the release before would take preferences for chats, and fail on them."""
    op.execute("alter table metrics drop column margin")
    op.execute("alter table files drop column format")
