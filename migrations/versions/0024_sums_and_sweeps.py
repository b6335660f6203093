"""Indexes for what sums and sweeps look for, so that they leave a year's rows alone."""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_CHANGES = (
    "create index jobs_uncollected on jobs (id) where collected_generation < 2147483647",
    "create index storage_ledger_ended on storage_ledger (ended_at)",
    "create index tier_moves_asked on tier_moves (asked_at)",
)
_BACK = (
    "drop index tier_moves_asked",
    "drop index storage_ledger_ended",
    "drop index jobs_uncollected",
)


def upgrade() -> None:
    """Expand only: the release before finds the same rows, and some of them sooner."""
    for change in _CHANGES:
        op.execute(change)


def downgrade() -> None:
    """The same rows are found by reading more."""
    for change in _BACK:
        op.execute(change)
