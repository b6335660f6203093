"""What stored bytes cost: by the month, to move, to leave early, to read; and the ledger's rows."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.money.storage_cost import (
    Change,
    Level,
    StorageRow,
    a_month,
    at_known_prices,
    changes,
    early_deletion,
    kept,
    levels,
    quote,
    read_back,
    rehydrating,
)
from service.domain.storage.access_tiers import GIB, SMALL, Priority, StoredBlob, Tier
from service.pricing.storage_prices import TABLE

START = datetime(2026, 1, 1, tzinfo=UTC)
MONTH = timedelta(hours=730)
BLOB = StoredBlob(name="models/a/model.safetensors", size=100 * GIB, since=START)
MANIFEST = StoredBlob(name="models/a/manifest.json", size=2000, since=START)


def archived(size: int = 100 * GIB) -> StoredBlob:
    return replace(BLOB, size=size, tier=Tier.ARCHIVE)


def test_a_gib_for_a_month_costs_what_the_list_says() -> None:
    row = StorageRow(
        tier=Tier.COOL, size=GIB, month=Decimal("0.0115"), started_at=START, ended_at=START + MONTH
    )

    assert kept([row], START + 2 * MONTH) == Decimal("0.0115")
    assert kept([replace(row, ended_at=None)], START + MONTH / 2) == Decimal("0.00575")
    assert kept([row], START - MONTH) == 0


def test_small_blobs_are_billed_as_128_kib_in_the_cooler_tiers_only() -> None:
    small = replace(MANIFEST, tier=Tier.COOL)

    assert levels([small, MANIFEST], TABLE) == {
        Tier.COOL: Level(size=SMALL, month=Decimal("0.0115")),
        Tier.HOT: Level(size=2000, month=Decimal("0.0208")),
    }


def test_a_move_to_the_archive_costs_a_write_and_says_what_is_saved() -> None:
    made = quote([BLOB, MANIFEST], Tier.ARCHIVE, Priority.STANDARD, TABLE, START)

    assert (made.blobs, made.size) == (1, 100 * GIB)
    assert made.operations == Decimal("0.11") / 10_000
    assert made.early_deletion == 0
    assert round(made.month_before, 4) == Decimal("2.0800")
    assert round(made.month_after, 4) == Decimal("0.2000")
    assert made.free_to_leave == START + timedelta(days=180)


def test_leaving_a_tier_early_costs_the_rest_of_its_time() -> None:
    cool = replace(BLOB, tier=Tier.COOL)
    tenth = START + timedelta(days=10)
    left = Decimal(20 * 24) / 730

    assert early_deletion(cool, TABLE, tenth) == 100 * Decimal("0.0115") * left
    assert early_deletion(cool, TABLE, START + timedelta(days=30)) == 0
    assert early_deletion(cool, TABLE, START + timedelta(days=90)) == 0  # nothing is paid back
    assert early_deletion(BLOB, TABLE, START) == 0
    made = quote([cool], Tier.COLD, Priority.STANDARD, TABLE, tenth)
    assert made.charge == early_deletion(cool, TABLE, tenth) + Decimal("0.18") / 10_000


def test_when_it_came_there_is_unknown_all_of_the_time_is_paid() -> None:
    cold = replace(BLOB, tier=Tier.COLD, since=None)

    assert early_deletion(cold, TABLE, START) == early_deletion(
        replace(cold, since=START), TABLE, START
    )


@pytest.mark.parametrize(
    ("priority", "cost", "hours"),
    [
        (Priority.STANDARD, Decimal("2.2") + Decimal("5.50") / 10_000, 15),
        (Priority.HIGH, Decimal(10) + Decimal(50) / 10_000, 10),
    ],
)
def test_bringing_100_gib_back_has_a_price_and_a_time(
    priority: Priority, cost: Decimal, hours: int
) -> None:
    way = rehydrating([archived(), MANIFEST], priority, TABLE)

    assert (way.cost, way.takes) == (cost, timedelta(hours=hours))


def test_reading_back_costs_nothing_worth_naming_from_hot_and_a_dollar_from_cool() -> None:
    ranges = 100 * GIB // (8 * 2**20)
    hot, cool = read_back([BLOB], TABLE), read_back([replace(BLOB, tier=Tier.COOL)], TABLE)

    assert hot == ranges * Decimal("0.0044") / 10_000
    assert cool == 1 + ranges * Decimal("0.01") / 10_000
    assert read_back([archived()], TABLE) == hot + Decimal("2.2") + Decimal("5.50") / 10_000


COOL, HOT = Level(size=10, month=Decimal(1)), Level(size=20, month=Decimal(2))
LAST, NOW = START, START + timedelta(hours=1)


def test_what_is_new_is_billed_from_the_last_look_on() -> None:
    more = replace(HOT, size=30)

    assert changes({}, {Tier.HOT: HOT}, LAST, NOW) == [Change(tier=Tier.HOT, at=LAST, level=HOT)]
    assert changes({Tier.HOT: HOT}, {Tier.HOT: more}, LAST, NOW) == [
        Change(tier=Tier.HOT, at=LAST, level=more)
    ]


def test_what_is_gone_or_moved_is_billed_until_now() -> None:
    assert changes({Tier.HOT: HOT}, {}, LAST, NOW) == [Change(tier=Tier.HOT, at=NOW, level=None)]
    moved = changes({Tier.HOT: HOT}, {Tier.COOL: replace(COOL, size=20)}, LAST, NOW)
    assert {change.at for change in moved} == {NOW}


def test_what_shrank_while_the_whole_grew_is_billed_until_now() -> None:
    before = {Tier.HOT: HOT, Tier.COOL: COOL}
    found = {Tier.HOT: replace(HOT, size=5), Tier.COOL: replace(COOL, size=28)}

    assert changes(before, found, LAST, NOW) == [
        Change(tier=Tier.HOT, at=NOW, level=found[Tier.HOT]),
        Change(tier=Tier.COOL, at=LAST, level=replace(COOL, size=13)),  # three are new
        Change(tier=Tier.COOL, at=NOW, level=found[Tier.COOL]),
    ]


def test_a_price_that_changed_meanwhile_holds_from_now_on() -> None:
    found = Level(size=HOT.size + 1, month=HOT.month + 1)

    assert changes({Tier.HOT: HOT}, {Tier.HOT: found}, LAST, NOW) == [
        Change(tier=Tier.HOT, at=LAST, level=replace(HOT, size=HOT.size + 1)),
        Change(tier=Tier.HOT, at=NOW, level=found),
    ]


def test_nothing_is_written_while_nothing_changes() -> None:
    assert changes({Tier.HOT: HOT}, {Tier.HOT: HOT}, LAST, NOW) == []


def test_a_price_list_that_is_away_changes_no_price() -> None:
    found = {Tier.HOT: replace(HOT, size=30, month=Decimal(9)), Tier.COOL: COOL}

    known = at_known_prices(found, {Tier.HOT: HOT})

    assert known == {Tier.HOT: replace(HOT, size=30), Tier.COOL: COOL}


SIZES = st.integers(0, 10**13)
HELD = st.dictionaries(
    st.sampled_from(list(Tier)),
    st.builds(Level, size=st.integers(1, 10**13), month=st.decimals("0.0001", 1, places=4)),
)


@given(st.lists(HELD, min_size=1, max_size=8))
def test_the_ledger_is_never_below_what_every_look_has_found(
    looks: list[dict[Tier, Level]],
) -> None:
    rows: list[StorageRow] = []
    before: dict[Tier, Level] = {}
    at, truth = START, Decimal(0)
    for found in looks:
        now = at + timedelta(hours=1)
        held = min((_cost(before), _cost(found)))
        truth += held / 730  # at least that was there in between
        for change in changes(before, found, at, now):
            rows = [_closed(row, change) for row in rows]
            if change.level:
                level = change.level
                rows.append(
                    StorageRow(
                        tier=change.tier,
                        size=level.size,
                        month=level.month,
                        started_at=change.at,
                        ended_at=None,
                    )
                )
        before, at = found, now

    assert {row.tier: (row.size, row.month) for row in rows if row.ended_at is None} == {
        tier: (level.size, level.month) for tier, level in before.items()
    }
    assert len([row for row in rows if row.ended_at is None]) == len(before)
    assert kept(rows, at) >= truth - Decimal("1e-9")


def _cost(held: dict[Tier, Level]) -> Decimal:
    return sum((level.size * level.month / GIB for level in held.values()), Decimal(0))


def _closed(row: StorageRow, change: Change) -> StorageRow:
    if row.tier is change.tier and row.ended_at is None:
        return replace(row, ended_at=max(change.at, row.started_at))
    return row


@given(SIZES, st.sampled_from(list(Tier)), st.sampled_from(list(Tier)))
def test_a_quote_is_never_negative_and_a_second_move_there_costs_nothing(
    size: int, lies: Tier, to: Tier
) -> None:
    blob = replace(BLOB, size=size, tier=lies)
    made = quote([blob], to, Priority.HIGH, TABLE, START)
    after = replace(blob, tier=to) if made.blobs else blob
    again = quote([after], to, Priority.HIGH, TABLE, START)

    assert made.charge >= 0
    assert (again.blobs, again.charge) == (0, Decimal(0))
    assert made.month_after == a_month([after], TABLE)
