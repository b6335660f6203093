"""The first hash of each checkpoint's manifest, and the policies that nodes' access hangs on."""

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: columns that may be null; the next commit of a job fills its hashes."""
    op.execute("alter table checkpoints add column manifest_sha256 text")
    op.execute("alter table attempts add column access_until timestamptz")
    op.execute(
        "create index attempts_access on attempts (job_id)"
        " where state = 'ended' and access_until is not null"
    )


def downgrade() -> None:
    """The release before believes what HEAD says, and its URLs need no policy."""
    op.execute("alter table attempts drop column access_until")
    op.execute("alter table checkpoints drop column manifest_sha256")
