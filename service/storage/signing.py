"""Keys that sign SAS URLs: the account's own key, or user delegation keys of Microsoft Entra.

A URL signed with the account's key may depend on an access policy, which can be deleted. A user
delegation SAS cannot name one: "Stored access policies are not supported for a user delegation SAS"
(Microsoft, Create a user delegation SAS). It ends with its time, with its key, when the identity
loses its role, or when all keys of the account are revoked at once
(StorageAccounts_RevokeUserDelegationKeys). So those URLs have short lives.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from azure.storage.blob import UserDelegationKey

from service.storage.store import StorageError

# Microsoft, Best practices when using SAS: set the start "at least 15 minutes in the past".
CLOCK_SKEW = timedelta(minutes=15)
# Get User Delegation Key: start and end lie within seven days of the time of the request. Counting
# from the start leaves room for a clock that is CLOCK_SKEW ahead of Azure's.
LONGEST = timedelta(days=7)
KEPT = timedelta(hours=1)  # use of one key; after a revocation all keys are new within this time


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Key that signs in `generate_blob_sas` and `generate_container_sas`: one of two kinds."""

    account_key: str | None = None
    user_delegation_key: UserDelegationKey | None = None
    start: datetime | None = None  # None: at once

    def arguments(self) -> dict[str, Any]:
        """Return the signature as keyword arguments of the SDK."""
        return {k: v for k, v in vars(self).items() if v is not None}


class KeySource(Protocol):
    """The method of Azure's BlobServiceClient that issues user delegation keys."""

    def get_user_delegation_key(
        self, key_start_time: datetime, key_expiry_time: datetime
    ) -> Awaitable[UserDelegationKey]:
        """Return a key that is valid between these two times."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Kept:
    key: UserDelegationKey
    asked: datetime
    end: datetime  # of the key

    def signs(self, now: datetime, expires_at: datetime) -> bool:
        """Return whether the key can sign until ``expires_at``.

        False as well if the clock was set back to before the key was requested."""
        return expires_at <= self.end and timedelta() <= now - self.asked < KEPT


@dataclass
class DelegationKeys:
    """Cache of a user delegation key, which it replaces after an hour."""

    now: Callable[[], datetime]
    _kept: _Kept | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def sign(self, source: KeySource, expires_at: datetime) -> Signature:
        """Return a signature for a SAS until ``expires_at``; its key lives at least so long.

        Raises StorageError for a time that lies too far ahead for any key.
        """
        async with self._asking:  # many nodes call at once: one request serves all
            now = self.now().replace(microsecond=0)  # Azure keeps whole seconds
            if self._kept is None or not self._kept.signs(now, expires_at):
                self._kept = await _ask(source, now, expires_at)
            return Signature(user_delegation_key=self._kept.key, start=now - CLOCK_SKEW)


async def _ask(source: KeySource, now: datetime, expires_at: datetime) -> _Kept:
    start = now - CLOCK_SKEW
    end = min(max(now, expires_at) + KEPT, start + LONGEST).replace(microsecond=0)
    if end < expires_at:
        raise StorageError(
            f"A SAS until {expires_at:%Y-%m-%dT%H:%M:%SZ} outlives every user delegation key:"
            f" they live {LONGEST.days} days at most."
        )
    key = await source.get_user_delegation_key(start, end)
    return _Kept(key=key, asked=now, end=end)
