"""Sign a browser in: a one-time token becomes an API key that expires after half a day."""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from contract.choices import Scope
from service.db.projects import keys as key_rows
from service.db.projects import sign_in
from service.db.projects.keys import Key
from service.db.projects.sign_in import SignInGrant
from service.domain import tokens
from service.domain.errors import InvalidSignIn
from service.operations.projects import keys

NAME: Final = "console"  # of the keys
KEY_LIFETIME: Final = timedelta(hours=12)
TOKEN_LIFETIME: Final = timedelta(minutes=10)


async def create_token(
    conn: AsyncConnection,
    project: str,
    scope: Scope,
    now: datetime,
    lifetime: timedelta = TOKEN_LIFETIME,
) -> str:
    """Return a new token for a key of this project, which is made if need be."""
    grant = SignInGrant(await key_rows.project(conn, project, now), scope)
    token = tokens.new_sign_in_token()
    await sign_in.add(conn, tokens.key_digest(token), grant, now, now + lifetime)
    return token


async def exchange(conn: AsyncConnection, token: str, now: datetime) -> tuple[Key, str]:
    """Use the token up; return a key's facts and the key itself, which cannot be shown again.

    Raises InvalidSignIn, which does not say whether the token was wrong, used or expired.
    """
    grant = await sign_in.use(conn, tokens.key_digest(token), now)
    if grant is None:
        raise InvalidSignIn(
            "This sign-in link is not valid: a link works once and for 10 minutes. Create another "
            "with `python -m service.main sign-in`, or sign in with an API key."
        )
    await key_rows.revoke_expired(conn, grant.project_id, NAME, now)
    return await keys.create_for_token(
        conn, grant.project_id, NAME, now, scope=grant.scope, expires_at=now + KEY_LIFETIME
    )
