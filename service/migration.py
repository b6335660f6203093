"""The schema that this release needs, and what brings a database to it."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from service.db.schema import Schema

MIGRATIONS = Path(__file__).parent.parent / "migrations"


def migrate(url: str) -> None:
    """Bring the schema up to date."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    command.upgrade(config, "head")


def schema() -> Schema:
    """The revisions that this release knows."""
    script = ScriptDirectory(str(MIGRATIONS))
    newest = script.get_current_head()
    assert newest is not None, "there are migrations"
    return Schema(newest=newest, known=frozenset(s.revision for s in script.walk_revisions()))
