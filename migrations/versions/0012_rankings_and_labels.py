"""Keep the most answers that a row of a file has, and the labels of labelled texts."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the release before must run on this schema too.

    It writes neither rankings nor labelled texts, so nobody reads these columns of its files.
    """
    op.execute("alter table files drop constraint files_format_check")
    op.execute(
        "alter table files add column answers integer not null default 0, "
        "add column labels jsonb not null default '[]', "
        "add constraint files_format_check check (format in "
        "('chat', 'preference', 'prompt', 'ranking', 'labelled_text'))"
    )


def downgrade() -> None:
    """Without them; rankings and labelled texts stay, and the release before fails on them."""
    op.execute(
        "alter table files drop constraint files_format_check, "
        "drop column answers, drop column labels"
    )
    op.execute(
        "alter table files add constraint files_format_check "
        "check (format in ('chat', 'preference', 'prompt')) not valid"
    )
