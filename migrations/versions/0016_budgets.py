"""Keep what jobs and projects may cost, until when they run, and where there is no capacity."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_CHANGES = (
    "alter table projects add column budget numeric(14, 6)",
    "alter table projects add column budget_since timestamptz",
    "alter table projects add column budget_told integer not null default 0",
    "alter table projects add constraint projects_budget_counts_from_check"
    " check ((budget is null) = (budget_since is null))",
    "alter table jobs add column terms jsonb not null default '{}'",
    "alter table jobs add column over_budget_at timestamptz",
    "alter table jobs add column over_budget_because text not null default ''",
    "alter table jobs add column budget_told integer not null default 0",
    "alter table jobs add column at_risk_at timestamptz",
    "alter table jobs add column moves_since timestamptz",
    "alter table jobs add column waits_for text not null default ''",
    "alter table attempts add column stop_by timestamptz",
    "create index attempts_lives on attempts (region, vm_size, capacity_type, created_at)"
    " where ran_at is not null",
    "create table shortages ("
    " region text not null, vm_size text not null, capacity_type text not null,"
    " since timestamptz not null, ends_at timestamptz not null,"
    " in_a_row integer not null, reason text not null,"
    " constraint shortages_pkey primary key (region, vm_size, capacity_type),"
    " constraint shortages_in_a_row_check check (in_a_row > 0))",
)
_BACK = (
    "drop index attempts_lives",
    "drop table shortages",
    "alter table attempts drop column stop_by",
    "alter table jobs drop column terms, drop column over_budget_at,"
    " drop column over_budget_because, drop column budget_told, drop column at_risk_at,"
    " drop column moves_since, drop column waits_for",
    "alter table projects drop column budget, drop column budget_since, drop column budget_told",
)


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    for change in _CHANGES:
        op.execute(change)


def downgrade() -> None:
    """Without budgets nothing stops a job but its end."""
    for change in _BACK:
        op.execute(change)
