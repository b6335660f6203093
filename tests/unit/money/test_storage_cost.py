"""What stored bytes cost: by the month, to move, to leave early, to read; and the ledger's rows."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.money.storage_cost import (
    LevelChange,
    StorageRow,
    TierLevel,
    cost_of_keeping,
    early_deletion_charge,
    level_changes,
    levels_by_tier,
    monthly_cost,
    quote_move,
    quote_rehydration,
    read_cost,
    with_known_prices,
)
from service.domain.storage.access_tiers import GIB, SMALL, AccessTier, ArchivePriority, TieredBlob
from service.pricing.storage_prices import TABLE

START = datetime(2026, 1, 1, tzinfo=UTC)
MONTH = timedelta(hours=730)
BLOB = TieredBlob(name="models/a/model.safetensors", size=100 * GIB, since=START)
MANIFEST = TieredBlob(name="models/a/manifest.json", size=2000, since=START)


def archived(size: int = 100 * GIB) -> TieredBlob:
    return replace(BLOB, size=size, tier=AccessTier.ARCHIVE)


def test_a_gib_for_a_month_costs_what_the_list_says() -> None:
    row = StorageRow(
        tier=AccessTier.COOL,
        size=GIB,
        month=Decimal("0.0115"),
        started_at=START,
        ended_at=START + MONTH,
    )

    assert cost_of_keeping([row], START + 2 * MONTH) == Decimal("0.0115")
    assert cost_of_keeping([replace(row, ended_at=None)], START + MONTH / 2) == Decimal("0.00575")
    assert cost_of_keeping([row], START - MONTH) == 0


def test_small_blobs_are_billed_as_128_kib_in_the_cooler_tiers_only() -> None:
    small = replace(MANIFEST, tier=AccessTier.COOL)

    assert levels_by_tier([small, MANIFEST], TABLE) == {
        AccessTier.COOL: TierLevel(size=SMALL, month=Decimal("0.0115")),
        AccessTier.HOT: TierLevel(size=2000, month=Decimal("0.0208")),
    }


def test_a_move_to_the_archive_costs_a_write_and_says_what_is_saved() -> None:
    quote = quote_move([BLOB, MANIFEST], AccessTier.ARCHIVE, ArchivePriority.STANDARD, TABLE, START)

    assert (quote.blobs, quote.size) == (1, 100 * GIB)
    assert quote.operations == Decimal("0.11") / 10_000
    assert quote.early_deletion == 0
    assert round(quote.month_before, 4) == Decimal("2.0800")
    assert round(quote.month_after, 4) == Decimal("0.2000")
    assert quote.free_to_leave == START + timedelta(days=180)


def test_leaving_a_tier_early_costs_the_rest_of_its_time() -> None:
    cool = replace(BLOB, tier=AccessTier.COOL)
    tenth = START + timedelta(days=10)
    remaining = Decimal(20 * 24) / 730

    assert early_deletion_charge(cool, TABLE, tenth) == 100 * Decimal("0.0115") * remaining
    assert early_deletion_charge(cool, TABLE, START + timedelta(days=30)) == 0
    # Not negative: nothing is refunded.
    assert early_deletion_charge(cool, TABLE, START + timedelta(days=90)) == 0
    assert early_deletion_charge(BLOB, TABLE, START) == 0
    full_charge = early_deletion_charge(cool, TABLE, START)
    assert early_deletion_charge(replace(cool, since=None), TABLE, START) == full_charge
    quote = quote_move([cool], AccessTier.COLD, ArchivePriority.STANDARD, TABLE, tenth)
    assert quote.charge == early_deletion_charge(cool, TABLE, tenth) + Decimal("0.18") / 10_000


@pytest.mark.parametrize(
    ("priority", "cost", "hours"),
    [
        (ArchivePriority.STANDARD, Decimal("2.2") + Decimal("5.50") / 10_000, 15),
        (ArchivePriority.HIGH, Decimal(10) + Decimal(50) / 10_000, 10),
    ],
)
def test_bringing_100_gib_back_has_a_price_and_a_time(
    priority: ArchivePriority, cost: Decimal, hours: int
) -> None:
    quote = quote_rehydration([archived(), MANIFEST], priority, TABLE)

    assert (quote.cost, quote.takes) == (cost, timedelta(hours=hours))


def test_reading_back_costs_nothing_worth_naming_from_hot_and_a_dollar_from_cool() -> None:
    ranges = 100 * GIB // (8 * 2**20)
    hot, cool = read_cost([BLOB], TABLE), read_cost([replace(BLOB, tier=AccessTier.COOL)], TABLE)

    assert hot == ranges * Decimal("0.0044") / 10_000
    assert cool == 1 + ranges * Decimal("0.01") / 10_000
    assert read_cost([archived()], TABLE) == hot + Decimal("2.2") + Decimal("5.50") / 10_000


COOL, HOT = TierLevel(size=10, month=Decimal(1)), TierLevel(size=20, month=Decimal(2))
LAST, NOW = START, START + timedelta(hours=1)


def test_what_is_new_is_billed_from_the_last_look_on() -> None:
    grown = replace(HOT, size=30)

    assert level_changes({AccessTier.HOT: HOT}, {AccessTier.HOT: HOT}, LAST, NOW) == []
    assert level_changes({}, {AccessTier.HOT: HOT}, LAST, NOW) == [
        LevelChange(tier=AccessTier.HOT, at=LAST, level=HOT)
    ]
    assert level_changes({AccessTier.HOT: HOT}, {AccessTier.HOT: grown}, LAST, NOW) == [
        LevelChange(tier=AccessTier.HOT, at=LAST, level=grown)
    ]


def test_what_is_gone_or_moved_is_billed_until_now() -> None:
    assert level_changes({AccessTier.HOT: HOT}, {}, LAST, NOW) == [
        LevelChange(tier=AccessTier.HOT, at=NOW, level=None)
    ]
    moved = level_changes(
        {AccessTier.HOT: HOT}, {AccessTier.COOL: replace(COOL, size=20)}, LAST, NOW
    )
    assert {change.at for change in moved} == {NOW}


def test_what_shrank_while_the_whole_grew_is_billed_until_now() -> None:
    before = {AccessTier.HOT: HOT, AccessTier.COOL: COOL}
    levels = {AccessTier.HOT: replace(HOT, size=5), AccessTier.COOL: replace(COOL, size=28)}

    assert level_changes(before, levels, LAST, NOW) == [
        LevelChange(tier=AccessTier.HOT, at=NOW, level=levels[AccessTier.HOT]),
        LevelChange(tier=AccessTier.COOL, at=LAST, level=replace(COOL, size=13)),  # three are new
        LevelChange(tier=AccessTier.COOL, at=NOW, level=levels[AccessTier.COOL]),
    ]


def test_a_price_that_changed_holds_from_now_on_and_a_list_that_is_away_changes_none() -> None:
    level = TierLevel(size=HOT.size + 1, month=HOT.month + 1)

    assert level_changes({AccessTier.HOT: HOT}, {AccessTier.HOT: level}, LAST, NOW) == [
        LevelChange(tier=AccessTier.HOT, at=LAST, level=replace(HOT, size=HOT.size + 1)),
        LevelChange(tier=AccessTier.HOT, at=NOW, level=level),
    ]

    unpriced = {AccessTier.HOT: replace(HOT, size=30, month=Decimal(9)), AccessTier.COOL: COOL}
    priced = with_known_prices(unpriced, {AccessTier.HOT: HOT})
    assert priced == {AccessTier.HOT: replace(HOT, size=30), AccessTier.COOL: COOL}


SIZES = st.integers(0, 10**13)
HELD = st.dictionaries(
    st.sampled_from(list(AccessTier)),
    st.builds(TierLevel, size=st.integers(1, 10**13), month=st.decimals("0.0001", 1, places=4)),
)


@given(st.lists(HELD, min_size=1, max_size=8))
def test_the_ledger_is_never_below_what_every_look_has_found(
    looks: list[dict[AccessTier, TierLevel]],
) -> None:
    rows: list[StorageRow] = []
    before: dict[AccessTier, TierLevel] = {}
    at, truth = START, Decimal(0)
    for levels in looks:
        now = at + timedelta(hours=1)
        cost = min((_cost(before), _cost(levels)))
        truth += cost / 730  # at least that was there in between
        for change in level_changes(before, levels, at, now):
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
        before, at = levels, now

    assert {row.tier: (row.size, row.month) for row in rows if row.ended_at is None} == {
        tier: (level.size, level.month) for tier, level in before.items()
    }
    assert len([row for row in rows if row.ended_at is None]) == len(before)
    assert cost_of_keeping(rows, at) >= truth - Decimal("1e-9")


def _cost(levels: dict[AccessTier, TierLevel]) -> Decimal:
    return sum((level.size * level.month / GIB for level in levels.values()), Decimal(0))


def _closed(row: StorageRow, change: LevelChange) -> StorageRow:
    if row.tier is change.tier and row.ended_at is None:
        return replace(row, ended_at=max(change.at, row.started_at))
    return row


@given(SIZES, st.sampled_from(list(AccessTier)), st.sampled_from(list(AccessTier)))
def test_a_quote_is_never_negative_and_a_second_move_there_costs_nothing(
    size: int, source: AccessTier, to: AccessTier
) -> None:
    blob = replace(BLOB, size=size, tier=source)
    quote = quote_move([blob], to, ArchivePriority.HIGH, TABLE, START)
    after = replace(blob, tier=to) if quote.blobs else blob
    second = quote_move([after], to, ArchivePriority.HIGH, TABLE, START)

    assert quote.charge >= 0
    assert (second.blobs, second.charge) == (0, Decimal(0))
    assert quote.month_after == monthly_cost([after], TABLE)
