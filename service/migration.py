"""The database schema of this release, and the migration to it."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from service.db.core.schema_version import KnownMigrations

MIGRATIONS = Path(__file__).parent.parent / "migrations"


class UnknownSchema(Exception):
    """The database has a schema of another release."""


def migrate(url: str) -> None:
    """Bring the schema up to date. Raises UnknownSchema, which says what to do."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise UnknownSchema(
            f"The database has a schema of another release: {error}. Use that release, or an empty "
            "database (locally: another --state folder)."
        ) from error


def schema() -> KnownMigrations:
    """Return the revisions that this release knows."""
    script = ScriptDirectory(str(MIGRATIONS))
    newest = script.get_current_head()
    assert newest is not None, "there are migrations"
    return KnownMigrations(
        newest=newest, known=frozenset(s.revision for s in script.walk_revisions())
    )
