"""Read and write one-time sign-in tokens of the console; only their hashes are stored."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from contract.choices import Scope
from service.db.schema.tables import sign_in_tokens

_c = sign_in_tokens.c


class SignInGrant(NamedTuple):
    """Project and scope of the key that a token grants."""

    project_id: str
    scope: Scope


async def add(
    conn: AsyncConnection, digest: bytes, granted: SignInGrant, now: datetime, until: datetime
) -> None:
    """Write the hash of a new token, and delete expired tokens."""
    await conn.execute(delete(sign_in_tokens).where(_c.expires_at <= now))
    row = {"sha256": digest, "project_id": granted.project_id, "scope": granted.scope}
    await conn.execute(insert(sign_in_tokens).values(**row, expires_at=until))


async def use(conn: AsyncConnection, digest: bytes, now: datetime) -> SignInGrant | None:
    """Use the token up and return its grant; None if it is unknown, expired or used.

    Of two concurrent calls one gets the grant.
    """
    good = (_c.sha256 == digest, _c.used_at.is_(None), _c.expires_at > now)
    used = update(sign_in_tokens).where(*good).values(used_at=now)
    row = (await conn.execute(used.returning(_c.project_id, _c.scope))).one_or_none()
    return None if row is None else SignInGrant(row.project_id, Scope(row.scope))
