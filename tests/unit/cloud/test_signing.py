"""User delegation keys: how long they sign, and by whose clock."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from azure.storage.blob import UserDelegationKey

from service.storage.signing import CLOCK_SKEW, KEY_REUSE, MAX_KEY_LIFETIME, DelegationKeys
from service.storage.store import StorageError
from tests.clock import Clock

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


async def test_a_clock_that_was_set_back_asks_for_a_key_that_is_valid_by_then(
    clock: Clock,
) -> None:
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
