"""Keep what Azure tells of Spot: eviction bands, prices and placement scores, with dates."""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_CHANGES = (
    "create table market_looks (what text not null constraint market_looks_pkey primary key,"
    " due_at timestamptz not null, told_at timestamptz, trouble text not null default '',"
    " trouble_at timestamptz)",
    "create table spot_bands ("
    " region text not null, vm_size text not null,"
    " since timestamptz not null, seen_at timestamptz not null,"
    " band text not null constraint spot_bands_band_check"
    " check (band in ('0-5', '5-10', '10-15', '15-20', '20+')),"
    " constraint spot_bands_pkey primary key (region, vm_size, since))",
    "create table spot_prices ("
    " region text not null, vm_size text not null, at timestamptz not null,"
    " hourly numeric(14, 6) not null constraint spot_prices_not_negative_check check (hourly >= 0),"
    " seen_at timestamptz not null,"
    " constraint spot_prices_pkey primary key (region, vm_size, at))",
    "create table spot_scores ("
    " region text not null, vm_size text not null,"
    " score text not null constraint spot_scores_score_check"
    " check (score in ('High', 'Medium', 'Low')),"
    " machines integer not null constraint spot_scores_machines_check check (machines > 0),"
    " since timestamptz not null, seen_at timestamptz not null,"
    " constraint spot_scores_pkey primary key (region, vm_size))",
    "create index attempts_ended on attempts (ended_at)",
)
_BACK = (
    "drop index attempts_ended",
    "drop table spot_scores",
    "drop table spot_prices",
    "drop table spot_bands",
    "drop table market_looks",
)


def upgrade() -> None:
    """Expand only: the release before plans without them."""
    for change in _CHANGES:
        op.execute(change)


def downgrade() -> None:
    """Plans rest on the setting again."""
    for change in _BACK:
        op.execute(change)
