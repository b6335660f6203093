"""Keep what Azure has billed, to hold the ledger against it."""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only."""
    op.execute("alter table market_looks add column first_day date")
    op.execute(
        "create table bills ("
        " day date not null, attempt_id text not null, category text not null,"
        " quantity numeric(18, 6) not null, amount numeric(14, 6) not null,"
        " seen_at timestamptz not null,"
        " constraint bills_pkey primary key (day, attempt_id, category))"
    )


def downgrade() -> None:
    """Azure tells it again."""
    op.execute("drop table bills")
    op.execute("alter table market_looks drop column first_day")
