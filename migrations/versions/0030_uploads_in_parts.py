"""Uploads that come in parts, and files that expire."""

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: columns that may be null and a table that begins empty."""
    op.execute(
        """
        alter table uploads
            add column mime_type text,
            add column expires_after integer,
            add column claim text,
            add column refusal jsonb
        """
    )
    op.execute(
        """
        create table upload_parts (
            id text constraint upload_parts_pkey primary key,
            upload_id text not null constraint upload_parts_upload_id_fkey
                references uploads (id) on delete cascade,
            bytes bigint not null constraint upload_parts_bytes_check check (bytes > 0),
            md5 text not null,
            blocks integer not null,
            created_at timestamptz not null
        )
        """
    )
    op.execute("create index upload_parts_upload_id on upload_parts (upload_id)")
    op.execute("alter table files add column expires_at timestamptz")
    op.execute(
        "create index files_expires_at on files (expires_at)"
        " where expires_at is not null and deleted_at is null"
    )


def downgrade() -> None:
    """The release before has neither; it gives up uploads in parts after an hour."""
    op.execute("drop table upload_parts")
    op.execute(
        "alter table uploads drop column mime_type, drop column expires_after,"
        " drop column claim, drop column refusal"
    )
    op.execute("alter table files drop column expires_at")
