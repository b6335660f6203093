"""Two more outcomes of an attempt: a person must act, and Azure failed by itself."""

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand only: the CHECK becomes wider."""
    op.execute(
        """
        alter table attempts
            drop constraint attempts_outcome_check,
            add constraint attempts_outcome_check check (outcome in (
                'succeeded', 'evicted', 'no_capacity', 'misconfigured', 'provisioning_failed',
                'unresponsive', 'trainer_error', 'cancelled', 'paused', 'over_budget'
            ))
        """
    )


def downgrade() -> None:
    """The release before knows neither: to it no machines were to be had."""
    op.execute(
        """
        update attempts set outcome = 'no_capacity'
            where outcome in ('misconfigured', 'provisioning_failed');
        alter table attempts
            drop constraint attempts_outcome_check,
            add constraint attempts_outcome_check check (outcome in (
                'succeeded', 'evicted', 'no_capacity', 'unresponsive', 'trainer_error',
                'cancelled', 'paused', 'over_budget'
            ))
        """
    )
