"""Checks of data files' rows, kept by everything that their reports rest on."""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: a cache, which begins empty."""
    op.execute(
        """
        create table preflights (
            key text constraint preflights_pkey primary key,
            touched_at timestamptz not null,
            rows_done bigint not null default 0,
            report jsonb,
            refusal jsonb,
            constraint preflights_one_outcome_check check (report is null or refusal is null)
        )
        """
    )
    op.execute("create index preflights_touched_at on preflights (touched_at)")


def downgrade() -> None:
    """The release before checks nothing."""
    op.execute("drop table preflights")
