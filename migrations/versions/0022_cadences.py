"""Keep what an attempt's nodes are told to save by, and when its outcome was known."""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_CHANGES = (
    "alter table attempts add column cadence jsonb",
    "alter table attempts add column over_at timestamptz",
    "create index attempts_evicted on attempts (over_at) where outcome = 'evicted'",
)
_BACK = (
    "drop index attempts_evicted",
    "alter table attempts drop column over_at",
    "alter table attempts drop column cadence",
)


def upgrade() -> None:
    """Expand only: the release before saves as planned."""
    for change in _CHANGES:
        op.execute(change)


def downgrade() -> None:
    """It is told anew."""
    for change in _BACK:
        op.execute(change)
