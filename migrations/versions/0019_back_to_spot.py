"""Let a job that runs on demand go back to Spot, and look up what requests were answered."""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_CHANGES = (
    "alter table jobs add column returns_since timestamptz",
    "create index attempts_refusals on attempts (region, vm_size, capacity_type, created_at)"
    " where outcome = 'no_capacity'",
    "create index attempts_left on attempts (created_at)"
    " where capacity_type = 'on_demand' and outcome = 'paused'",
)
_BACK = (
    "drop index attempts_left",
    "drop index attempts_refusals",
    "alter table jobs drop column returns_since",
)


def upgrade() -> None:
    """Expand only: the release before leaves such a job where it is."""
    for change in _CHANGES:
        op.execute(change)


def downgrade() -> None:
    """A job stays on demand once it is there."""
    for change in _BACK:
        op.execute(change)
