"""Check that the database has the schema that this release needs."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

_NO_TABLE = "42P01"


@dataclass(frozen=True, kw_only=True)
class KnownMigrations:
    """The migrations that this release knows."""

    newest: str
    known: frozenset[str]

    async def fault(self, conn: AsyncConnection) -> str:
        """Return what is wrong and what to do; "" when all is well.

        An unknown revision is a later release's: migrations expand first, so this release runs on
        it.
        """
        revision = await _revision(conn)
        if revision == self.newest or (revision is not None and revision not in self.known):
            return ""
        return (
            f"The schema is {revision or 'empty'}, this release needs {self.newest}: run"
            " `python -m service.main migrate`."
        )


async def _revision(conn: AsyncConnection) -> str | None:
    """Return the revision of the schema; None if the database was never migrated.

    After None the transaction has failed: PostgreSQL refuses its further reads.
    """
    try:
        return (await conn.execute(text("select version_num from alembic_version"))).scalar()
    except ProgrammingError as error:
        if getattr(error.orig, "sqlstate", "") != _NO_TABLE:
            raise
        return None
