"""Add what a job's detail shows: its version, progress, result file, and what evictions took."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COLUMNS = (
    ("jobs", "version", "bigint not null default 1"),
    ("jobs", "updated_at", "timestamptz not null default now()"),
    ("jobs", "progress", "jsonb not null default '{}'"),
    ("jobs", "lost_steps", "integer not null default 0"),
    ("jobs", "trained_tokens", "bigint"),
    ("jobs", "result_file", "text constraint jobs_result_file_fkey references files (id)"),
    ("attempts", "evicted_noticed", "integer not null default 0"),
    ("attempts", "evicted_unnoticed", "integer not null default 0"),
    ("generations", "lost_steps", "integer not null default 0"),
    ("checkpoints", "dropped_at", "timestamptz"),
)


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    for table, column, kind in COLUMNS:
        op.execute(f"alter table {table} add column {column} {kind}")
    op.execute("create index jobs_result_file on jobs (result_file) where result_file is not null")


def downgrade() -> None:
    """Without these columns."""
    for table, column, _ in reversed(COLUMNS):
        op.execute(f"alter table {table} drop column {column}")
