"""API keys."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import keys
from service.db.keys import Caller
from service.domain import tokens
from service.domain.errors import InvalidApiKey


async def create(conn: AsyncConnection, project: str, name: str, now: datetime) -> str:
    """Make a key in a project (made if need be) and return it; it cannot be shown again."""
    project_id = await keys.project(conn, project, now)
    key = tokens.new_api_key()
    await keys.add(conn, project_id, name, tokens.digest(key), key[-4:], now)
    return key


async def authenticate(conn: AsyncConnection, key: str) -> Caller:
    """Who the key belongs to, or raise InvalidApiKey."""
    caller = await keys.find(conn, tokens.digest(key)) if key else None
    if caller is None:
        raise InvalidApiKey(
            "No valid API key. Send `Authorization: Bearer rk-...`; "
            "make one with `python -m service.main key create`."
        )
    return caller
