"""${message}"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Expand only: the release before must run on this schema too."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Back to the release before."""
    ${downgrades if downgrades else "pass"}
