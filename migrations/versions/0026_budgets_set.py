"""When a project's budget was set or lifted: jobs that stopped for it before are weighed again."""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: null means that there was none since, and the release before says nothing.

    Jobs that stopped for a budget are weighed once more: whoever set it may not have come to them.
    """
    op.execute("alter table projects add column budget_set_at timestamptz")
    op.execute("update projects set budget_set_at = now() where budget is not null")


def downgrade() -> None:
    """The release before tells by the amount alone whether a budget is another one."""
    op.execute("alter table projects drop column budget_set_at")
