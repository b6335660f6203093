"""Keep what members all rows of a file have, and what a step's answers were worth."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the release before must run on this schema too.

    It writes no prompts, so nobody reads the members of its files; what it measures has no grades.
    """
    op.execute("alter table files drop constraint files_format_check")
    op.execute(
        "alter table files add column members jsonb not null default '{}', "
        "add constraint files_format_check check (format in ('chat', 'preference', 'prompt'))"
    )
    op.execute(
        "alter table metrics add column reward double precision, "
        "add column kl double precision, add column answer_tokens double precision, "
        "add column grader_errors integer not null default 0"
    )


def downgrade() -> None:
    """Without them; prompts that are there stay, and the release before fails on them."""
    op.execute(
        "alter table metrics drop column reward, drop column kl, drop column answer_tokens, "
        "drop column grader_errors"
    )
    op.execute("alter table files drop constraint files_format_check, drop column members")
    op.execute(
        "alter table files add constraint files_format_check "
        "check (format in ('chat', 'preference')) not valid"
    )
