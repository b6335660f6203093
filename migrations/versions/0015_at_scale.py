"""What replicas share of Azure: what was listed last, tokens, circuits; pruning; more indexes."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_UP = (
    "alter table attempts add column seen_at timestamptz",
    "alter table jobs add column events_pruned boolean not null default false",
    "alter table jobs add column metrics_pruned boolean not null default false",
    """create table cloud_listings (
         scope text not null primary key,
         due_at timestamptz not null,
         listed_at timestamptz,
         sets jsonb not null default '{}')""",
    """create table cloud_tokens (
         region text not null,
         kind text not null,
         tokens double precision not null,
         at timestamptz not null,
         primary key (region, kind))""",
    """create table cloud_circuits (
         region text not null primary key,
         failures integer not null default 0,
         shut_until timestamptz)""",
    "create index ledger_of_attempt on ledger (attempt_id, vm_id)",
    """create index jobs_with_events on jobs (finished_at)
         where finished_at is not null and not events_pruned""",
    """create index jobs_with_metrics on jobs (finished_at)
         where finished_at is not null and not metrics_pruned""",
    # A heartbeat then finds room beside the row that it replaces, and touches no index.
    "alter table nodes set (fillfactor = 70)",
)
_DOWN = (
    "alter table nodes reset (fillfactor)",
    "drop index jobs_with_metrics",
    "drop index jobs_with_events",
    "drop index ledger_of_attempt",
    "drop table cloud_circuits",
    "drop table cloud_tokens",
    "drop table cloud_listings",
    "alter table jobs drop column metrics_pruned",
    "alter table jobs drop column events_pruned",
    "alter table attempts drop column seen_at",
)


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    """Nothing of it is missed: it is all learnt again."""
    for statement in _DOWN:
        op.execute(statement)
