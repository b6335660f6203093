"""Add what is known of broken checkpoints, why each is kept, and how far garbage was collected."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

FINDINGS = """
create table findings (
    job_id text not null constraint findings_job_id_fkey references jobs (id),
    path text not null,
    node_id text not null constraint findings_node_id_fkey references nodes (id),
    attempt_id text not null constraint findings_attempt_id_fkey references attempts (id),
    generation integer not null,
    file text not null,
    reason text not null,
    constraint findings_pkey primary key (job_id, path, node_id, generation)
)
"""


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    op.execute("alter table checkpoints add column broken_because text")
    op.execute("alter table checkpoints add column kept_as text not null default 'recent'")
    op.execute(
        "alter table checkpoints add constraint checkpoints_kept_as_check "
        "check (kept_as in ('recent', 'best', 'milestone'))"
    )
    op.execute("alter table jobs add column collected_generation integer not null default 0")
    op.execute(FINDINGS)


def downgrade() -> None:
    """Without them; what HEAD has let go of stays let go of."""
    op.execute("drop table findings")
    op.execute("alter table jobs drop column collected_generation")
    op.execute("alter table checkpoints drop column kept_as")
    op.execute("alter table checkpoints drop column broken_because")
