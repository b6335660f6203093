"""Keep how well the machines were used, and what the guard and the loss scale did."""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the release before writes none of them."""
    op.execute(
        "alter table metrics add column loss_scale double precision, "
        "add column mfu double precision, add column peak_memory bigint, "
        "add column slowest_rank integer, add column slowest_ratio double precision, "
        "add column spike double precision, add column skipped boolean not null default false"
    )


def downgrade() -> None:
    """Without them."""
    op.execute(
        "alter table metrics drop column loss_scale, drop column mfu, drop column peak_memory, "
        "drop column slowest_rank, drop column slowest_ratio, drop column spike, "
        "drop column skipped"
    )
