"""Blob Storage as Azure describes it: tiers, refusals, and the keys that sign URLs."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.storage.blob import BlobProperties, RehydratePriority, UserDelegationKey

from service.domain.storage.access_tiers import AccessTier, ArchivePriority
from service.storage.azure_errors import translate_errors
from service.storage.azure_tiers import parse_blob
from service.storage.signing import CLOCK_SKEW, KEY_REUSE, MAX_KEY_LIFETIME, DelegationKeys
from service.storage.store import StorageError
from tests.clock import Clock

MADE = datetime(2026, 1, 1, tzinfo=UTC)
CHANGED = MADE + timedelta(days=3)


def listed(**members: Any) -> BlobProperties:  # noqa: ANN401 - as many kinds as there are members
    """Return a blob with these members, as the SDK lists it."""
    properties = BlobProperties()
    plain = {"name": "a", "size": 7, "creation_time": MADE, "blob_tier": "Hot"}
    for name, value in (plain | members).items():
        setattr(properties, name, value)
    return properties


ARCHIVED = {"blob_tier": "Archive"}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"blob_tier": "Hot"}, {"tier": AccessTier.HOT, "movable": True, "since": MADE, "size": 7}),
        ({"blob_tier": "Cold"}, {"tier": AccessTier.COLD}),
        (ARCHIVED, {"tier": AccessTier.ARCHIVE, "rehydrating": None, "priority": None}),
        ({"blob_tier": None}, {"tier": AccessTier.HOT, "movable": False}),
        ({"blob_tier": "Smart"}, {"tier": AccessTier.HOT, "movable": False}),
        ({"blob_tier_change_time": CHANGED}, {"since": CHANGED}),
        (ARCHIVED | {"archive_status": "rehydrate-pending-to-hot"},
         {"rehydrating": AccessTier.HOT}),
        (ARCHIVED | {"archive_status": "rehydrate-pending-to-cold"},
         {"rehydrating": AccessTier.COLD}),
        (ARCHIVED | {"archive_status": "rehydrate-pending-to-smart"},
         {"rehydrating": AccessTier.HOT}),
        (ARCHIVED | {"archive_status": "rehydrate-pending"}, {"rehydrating": None}),
        ({"rehydrate_priority": "High"}, {"priority": ArchivePriority.HIGH}),
        ({"rehydrate_priority": RehydratePriority.STANDARD},
         {"priority": ArchivePriority.STANDARD}),
        ({"version_id": "v2", "is_current_version": True}, {"movable": True}),
        ({"version_id": "v1"}, {"movable": False, "size": 7}),
        ({"snapshot": "2026"}, {"movable": False, "size": 7}),
        ({"deleted": True}, {"movable": False, "size": 7}),
    ],
)  # fmt: skip
def test_what_a_list_says_of_a_blob_is_read(
    members: dict[str, Any], expected: dict[str, Any]
) -> None:
    blob = parse_blob(listed(**members))

    assert {name: getattr(blob, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("code", "remedies"),
    [
        ("AuthorizationPermissionMismatch", ["assign Storage Blob Data Contributor", "10 minutes"]),
        ("AuthorizationFailure", ["firewall", "assign Storage Blob Data Contributor"]),
        (
            "KeyBasedAuthenticationNotPermitted",
            ["https://ACCOUNT.blob.core.windows.net", "assign Storage Blob Data Contributor"],
        ),
    ],
)
async def test_a_refusal_names_its_code_and_the_role_that_is_missing(
    code: str, remedies: list[str]
) -> None:
    error = HttpResponseError("This request is not authorized to perform this operation.")
    error.error_code = code  # type: ignore[attr-defined]  # the client sets it from the answer
    with pytest.raises(StorageError) as refused:
        async with translate_errors("job/HEAD"):
            raise error

    assert str(refused.value).startswith(f"job/HEAD: {code}: ")
    assert all(remedy in str(refused.value) for remedy in remedies)


async def test_a_sign_in_that_fails_is_told_as_one() -> None:
    with pytest.raises(StorageError, match="cannot sign in to Microsoft Entra ID: AADSTS7000215"):
        async with translate_errors("job/HEAD"):
            raise ClientAuthenticationError("AADSTS7000215: Invalid client secret provided.")


HOUR = timedelta(hours=1)
WEEK = timedelta(days=7)


class RefusedByAzure(Exception):
    """400 InvalidXmlDocument or OutOfRangeInput, as Azure answers times it does not take."""


@dataclass
class Account:
    """As strict as Azure: start and end within seven days of its own time, in order."""

    now: datetime
    asked: list[tuple[datetime, datetime]] = field(default_factory=list)

    async def get_user_delegation_key(
        self, key_start_time: datetime, key_expiry_time: datetime
    ) -> UserDelegationKey:
        await asyncio.sleep(0)
        if not (self.now - WEEK <= key_start_time < key_expiry_time <= self.now + WEEK):
            raise RefusedByAzure
        self.asked.append((key_start_time, key_expiry_time))
        return UserDelegationKey()  # type: ignore[no-untyped-call]  # the SDK's


async def test_a_key_that_would_end_before_its_url_makes_way_for_a_new_one(clock: Clock) -> None:
    account, keys = Account(clock()), DelegationKeys(clock)
    await keys.sign(account, clock() + HOUR)
    end = account.asked[0][1]
    clock.advance(seconds=60)
    await keys.sign(account, end)
    assert len(account.asked) == 1

    await keys.sign(account, end + timedelta(seconds=1))

    assert len(account.asked) == 2
    assert account.asked[1][1] > end + timedelta(seconds=1)


async def test_a_key_signs_for_an_hour_so_that_a_revocation_is_over_then(clock: Clock) -> None:
    account, keys = Account(clock()), DelegationKeys(clock)
    first = await keys.sign(account, clock() + timedelta(days=2))
    clock.advance(seconds=KEY_REUSE.total_seconds() - 1)
    again = await keys.sign(account, clock() + HOUR)
    clock.advance(seconds=1)
    later = await keys.sign(account, clock() + HOUR)

    assert first.user_delegation_key is again.user_delegation_key
    assert later.user_delegation_key is not first.user_delegation_key


async def test_many_nodes_at_once_share_one_request(clock: Clock) -> None:
    account, keys = Account(clock()), DelegationKeys(clock)
    await asyncio.gather(*(keys.sign(account, clock() + HOUR) for _ in range(50)))

    assert len(account.asked) == 1


@pytest.mark.parametrize("minutes", [-10, 0, 10])
@pytest.mark.parametrize("life", [HOUR, timedelta(days=6)])
async def test_a_clock_ten_minutes_off_makes_urls_that_azure_takes_at_once(
    clock: Clock, minutes: int, life: timedelta
) -> None:
    account, keys = Account(clock()), DelegationKeys(clock)
    true = clock()
    clock.advance(seconds=60 * minutes)
    signature = await keys.sign(account, clock() + life)
    start, end = account.asked[0]

    assert signature.start is not None
    assert start <= signature.start < true
    assert true < clock() + life <= end


async def test_a_clock_that_was_set_back_asks_for_a_key_that_is_valid_by_then(clock: Clock) -> None:
    account, keys = Account(clock()), DelegationKeys(clock)
    await keys.sign(account, clock() + HOUR)
    clock.advance(seconds=-3600)
    signature = await keys.sign(account, clock() + HOUR)

    assert signature.start == clock() - CLOCK_SKEW == account.asked[1][0]


async def test_no_url_outlives_every_key(clock: Clock) -> None:
    account, keys = Account(clock()), DelegationKeys(clock)

    await keys.sign(account, clock() + MAX_KEY_LIFETIME - CLOCK_SKEW)
    with pytest.raises(StorageError, match="7 days"):
        await keys.sign(account, clock() + MAX_KEY_LIFETIME)
