"""Add what a file was found to hold, uploads under way, and when a key was used last."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COLUMNS = (
    ("files", "warnings", "jsonb not null default '[]'"),
    ("files", "warning_counts", "jsonb not null default '{}'"),
    ("files", "longest", "jsonb not null default '[]'"),
    ("api_keys", "last_used_at", "timestamptz"),
)
UPLOADS = """
create table uploads (
    id text constraint uploads_pkey primary key,
    project_id text not null constraint uploads_project_id_fkey references projects (id),
    filename text not null,
    purpose text not null,
    expected_bytes bigint,
    received_bytes bigint not null,
    examples integer not null,
    created_at timestamptz not null,
    touched_at timestamptz not null
)
"""


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    for table, column, kind in COLUMNS:
        op.execute(f"alter table {table} add column {column} {kind}")
    op.execute(UPLOADS)
    op.execute("create index uploads_listing on uploads (project_id, id)")
    op.execute("create index api_keys_listing on api_keys (project_id, id)")


def downgrade() -> None:
    """Without these."""
    op.execute("drop index api_keys_listing")
    op.execute("drop table uploads")
    for table, column, _ in reversed(COLUMNS):
        op.execute(f"alter table {table} drop column {column}")
