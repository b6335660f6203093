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
MAX_KEY_LIFETIME = timedelta(days=7)
KEY_REUSE = timedelta(hours=1)  # after a revocation all keys are new within this time


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
class _CachedKey:
    key: UserDelegationKey
    requested_at: datetime
    end: datetime  # of the key

    def can_sign(self, now: datetime, expires_at: datetime) -> bool:
        """Return whether the key can sign until ``expires_at``.

        False as well if the clock was set back to before the key was requested."""
        return expires_at <= self.end and timedelta() <= now - self.requested_at < KEY_REUSE


@dataclass
class DelegationKeys:
    """Cache of a user delegation key, which it replaces after an hour."""

    now: Callable[[], datetime]
    _cached_key: _CachedKey | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def sign(self, source: KeySource, expires_at: datetime) -> Signature:
        """Return a signature for a SAS until ``expires_at``; its key lives at least so long.

        Raises StorageError for a time that lies too far ahead for any key.
        """
        async with self._lock:  # many nodes call at once: one request serves all
            now = self.now().replace(microsecond=0)  # Azure keeps whole seconds
            if self._cached_key is None or not self._cached_key.can_sign(now, expires_at):
                self._cached_key = await _request_key(source, now, expires_at)
            return Signature(user_delegation_key=self._cached_key.key, start=now - CLOCK_SKEW)


async def _request_key(source: KeySource, now: datetime, expires_at: datetime) -> _CachedKey:
    start = now - CLOCK_SKEW
    end = min(max(now, expires_at) + KEY_REUSE, start + MAX_KEY_LIFETIME).replace(microsecond=0)
    if end < expires_at:
        raise StorageError(
            f"A SAS until {expires_at:%Y-%m-%dT%H:%M:%SZ} outlives every user delegation key:"
            f" they live {MAX_KEY_LIFETIME.days} days at most."
        )
    key = await source.get_user_delegation_key(start, end)
    return _CachedKey(key=key, requested_at=now, end=end)
