"""Keep for how many machines a shortage holds."""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_CHANGES = (
    "alter table shortages add column nodes integer not null default 1",
    "alter table shortages add constraint shortages_nodes_check check (nodes > 0)",
)
_BACK = ("alter table shortages drop column nodes",)


def upgrade() -> None:
    """Expand only: what the release before adds holds for all asks, as it did."""
    for change in _CHANGES:
        op.execute(change)


def downgrade() -> None:
    """Each holds for all asks again."""
    for change in _BACK:
        op.execute(change)
