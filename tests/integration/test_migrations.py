"""The migrations and the tables in the code describe one schema."""

from alembic import command

from tests.postgres import migrations


def test_the_migrations_lead_to_the_tables_in_the_code(database_url: str) -> None:
    command.check(migrations(database_url))


def test_migrating_again_changes_nothing(database_url: str) -> None:
    command.upgrade(migrations(database_url), "head")
    command.check(migrations(database_url))
