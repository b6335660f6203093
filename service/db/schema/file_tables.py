"""Tables of files, uploads and their parts."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB

from contract.choices import Format
from service.db.schema.columns import Moment, metadata, one_of, partial_index

files = Table(
    "files",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", ForeignKey("projects.id"), nullable=False),
    Column("filename", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("examples", Integer, nullable=False),
    Column("characters", BigInteger, nullable=False),
    Column("mean_tokens", Integer, nullable=False),  # per example, estimated
    Column("created_at", Moment, nullable=False),
    Column("deleted_at", Moment),
    Column("warnings", JSONB, nullable=False, server_default="[]"),  # the first, with their lines
    Column("warning_counts", JSONB, nullable=False, server_default="{}"),  # all of them, by code
    Column("longest", JSONB, nullable=False, server_default="[]"),  # rows: [line, tokens]
    Column("format", Text, nullable=False, server_default=Format.CHAT),  # of every row
    one_of("format", Format),
    Column("members", JSONB, nullable=False, server_default="{}"),  # of prompts
    Column("answers", Integer, nullable=False, server_default="0"),  # of rankings, the most
    Column("labels", JSONB, nullable=False, server_default="[]"),  # of labelled texts
    Column("expires_at", Moment),
    partial_index(
        "files_expires_at", "expires_at", where="expires_at is not null and deleted_at is null"
    ),
    Index("files_listing", "project_id", "id"),
)

uploads = Table(  # with its last byte an upload becomes a row of files
    "uploads",
    metadata,
    Column("id", Text, primary_key=True),  # also the future file's
    Column("project_id", ForeignKey("projects.id"), nullable=False),
    Column("filename", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("expected_bytes", BigInteger),  # of the whole request; of an upload in parts, the file
    Column("received_bytes", BigInteger, nullable=False),
    Column("examples", Integer, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("touched_at", Moment, nullable=False),
    Column("given_up_at", Moment),  # abandoned; its blob, if any, is to be deleted
    Column("mime_type", Text),  # of an upload in parts; null: the file comes in one request
    Column("expires_after", Integer),  # seconds that the file will live
    Column("claim", Text),  # token of the request that completes the upload
    Column("refusal", JSONB),  # why it was refused; repeated requests get the same answer
    Index("uploads_listing", "project_id", "id"),
)

upload_parts = Table(
    "upload_parts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("upload_id", ForeignKey("uploads.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("bytes", BigInteger, nullable=False),
    Column("md5", Text, nullable=False),
    Column("blocks", Integer, nullable=False),  # staged in the blob of the upload
    Column("created_at", Moment, nullable=False),
    CheckConstraint("bytes > 0", name="bytes"),
)
