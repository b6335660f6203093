"""Capacity is a function of time: the same whenever and however often it is asked."""

import json
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.capacity import SpotCapacity, scarcity
from emulator.capacity.traces import (
    DAY,
    Constant,
    MachinesOverTime,
    Random,
    Recorded,
    at,
    falls,
    lowest,
    machine_hours,
)
from emulator.core.catalog import catalog
from emulator.core.errors import ArmError

SIZE = "Standard_ND96amsr_A100_v4"
NOW = 1_795_176_000.0  # 20 November 2026
moments = st.floats(NOW - 400 * DAY, NOW + 400 * DAY)
randoms = st.builds(
    Random,
    st.text(max_size=3),
    total=st.integers(0, 40),
    orders_per_hour=st.floats(0, 3),
    order_size=st.floats(1, 20),
    order_hours=st.floats(0.1, 30),
)
recordings = st.builds(
    Recorded,
    st.lists(st.integers(0, 16), min_size=1).map(tuple),
    gap=st.sampled_from([60.0, 195.0, 300.0]),
    start=st.sampled_from([0.0, NOW, 12345.0]),
)
traces = st.one_of(randoms, recordings, st.builds(Constant, st.integers(0, 40)))


@given(traces, moments, st.floats(0, 3 * DAY), st.floats(0, 1))
def test_what_a_span_says_of_a_moment_is_what_the_moment_itself_says(
    trace: MachinesOverTime, since: float, span: float, share: float
) -> None:
    steps = trace.steps(since, since + span)
    moment = since + share * span
    count = [count for begin, count in steps if begin <= moment][-1]

    assert at(trace, moment) == count
    assert lowest(trace, since, since + span) <= count <= trace.plenty


@given(traces, moments, st.floats(0, 3 * DAY))
def test_steps_are_in_order_and_each_changes_something(
    trace: MachinesOverTime, since: float, span: float
) -> None:
    steps = trace.steps(since, since + span)

    assert steps[0][0] == since
    assert all(a[0] < b[0] <= since + span and a[1] != b[1] for a, b in pairwise(steps))
    assert all(count >= 0 for _, count in steps)


@given(traces, moments, st.floats(1, DAY), st.floats(1, DAY))
def test_machine_hours_and_falls_of_two_spans_add_up(
    trace: MachinesOverTime, since: float, first: float, second: float
) -> None:
    middle, end = since + first, since + first + second

    total = machine_hours(trace, since, end)
    parts = machine_hours(trace, since, middle) + machine_hours(trace, middle, end)
    assert parts == pytest.approx(total, abs=1e-3)
    assert falls(trace, since, middle) + falls(trace, middle, end) == falls(trace, since, end)


def test_random_capacity_keeps_its_mean() -> None:
    roomy = Random("s", total=1000, orders_per_hour=0.5, order_size=8.0, order_hours=4.0)
    missing = 1000 - machine_hours(roomy, NOW - 365 * DAY, NOW) / (365 * 24)

    assert missing == pytest.approx(0.5 * 8 * 4, rel=0.15)


def test_other_seeds_and_places_have_other_capacity(tmp_path: Path) -> None:
    capacity = over(tmp_path, {"region": "*", "kind": "random", "seed": 1})
    east, west = capacity.pool_at("eastus", "", SIZE), capacity.pool_at("westus3", "", SIZE)
    other_seed = over(tmp_path, {"region": "*", "kind": "random", "seed": 2}).pool_at(
        "eastus", "", SIZE
    )

    assert east
    assert west
    assert other_seed
    week = (NOW - 7 * DAY, NOW)
    assert len({str(p.trace.steps(*week)) for p in (east, west, other_seed)}) == 3


def test_a_recording_is_read_as_it_was_recorded_and_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "zone.json").write_text(
        json.dumps({"metadata": {"gap_seconds": 300}, "data": [1, 0, 2]})
    )
    entry = {"region": "East US", "kind": "trace", "file": "zone.json", "times": 4}
    capacity = over(tmp_path, entry | {"start": "2026-11-20T12:00:00Z"})
    (tmp_path / "zone.json").unlink()  # it was taken in

    pool = capacity.pool_at("eastus", "", SIZE)
    assert pool
    assert [pool.now(NOW + 300 * n) for n in range(-1, 5)] == [8, 4, 0, 8, 4, 0]
    assert pool.now(NOW + 299) == 4


def test_the_most_exact_entry_counts(tmp_path: Path) -> None:
    capacity = over(
        tmp_path,
        {"region": "*", "kind": "constant", "capacity": 1},
        {"region": "eastus", "kind": "constant", "capacity": 2},
        {"region": "eastus", "size": SIZE, "kind": "constant", "capacity": 3},
        {"region": "eastus", "zone": 1, "kind": "constant", "capacity": 4},
        {"region": "eastus", "priority": "Regular", "kind": "constant", "capacity": 5},
    )

    def machines_in(region: str, zone: str, size: str, *, spot: bool = True) -> int | None:
        pool = capacity.pool_at(region, zone, size, spot=spot)
        return pool.now(NOW) if pool else None

    assert machines_in("westus3", "", SIZE) == 1
    assert machines_in("EastUS", "", "Standard_NC24ads_A100_v4") == 2
    assert machines_in("eastus", "", SIZE.upper()) == 3
    assert machines_in("eastus", "1", SIZE) == 4
    assert machines_in("eastus", "2", SIZE) == 3
    assert machines_in("eastus", "", SIZE, spot=False) == 5
    assert machines_in("westus3", "", SIZE, spot=False) is None


def test_what_is_posted_lies_over_the_base_and_outlives_the_emulator(tmp_path: Path) -> None:
    over(tmp_path, {"region": "eastus", "kind": "constant", "capacity": 2})
    base, file = tmp_path / "base.json", tmp_path / "spot-capacity.json"
    capacity = SpotCapacity(file, base)
    capacity.post([{"region": "eastus", "kind": "trace", "data": [7], "gap_seconds": 60}])
    reopened = SpotCapacity(file, base)

    pool = reopened.pool_at("eastus", "", SIZE)
    assert pool
    assert pool.now(NOW) == 7
    assert reopened.clear(region="EastUS") == 1
    pool = SpotCapacity(file, base).pool_at("eastus", "", SIZE)
    assert pool
    assert pool.now(NOW) == 2


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"region": "eastus"}, "'kind'"),
        ({"kind": "constant", "capacity": 1}, "'region'"),
        ({"region": "eastus", "kind": "constant", "capacity": -1}, "'capacity'"),
        ({"region": "eastus", "kind": "constant", "total": 3}, "no member 'total'"),
        ({"region": "eastus", "kind": "random", "order_size": 0.5}, "'order_size'"),
        ({"region": "eastus", "kind": "random", "partial": 2}, "'partial'"),
        ({"region": "eastus", "kind": "trace"}, "'data'"),
        ({"region": "eastus", "kind": "trace", "file": "nowhere.json"}, "nowhere.json"),
        ({"region": "eastus", "kind": "trace", "data": [1], "gap_seconds": 0}, "'gap_seconds'"),
        ({"region": "eastus", "kind": "trace", "data": [1], "gap_seconds": 9, "start": "noon"},
         "'start'"),
        ({"region": "eastus", "kind": "trace", "data": [1], "gap_seconds": 9, "start": 1e300},
         "'start'"),
    ],
)  # fmt: skip
def test_a_malformed_entry_is_refused_with_the_reason(
    tmp_path: Path, entry: object, complaint: str
) -> None:
    with pytest.raises(ArmError, match=complaint):
        over(tmp_path, entry)


def test_scarcity_raises_the_price_up_to_that_of_on_demand(tmp_path: Path) -> None:
    hours = [16] * 24 + [8] * 24 + [0] * 24
    entry = {"region": "eastus", "kind": "trace", "data": hours, "gap_seconds": 3600}
    capacity = over(tmp_path, entry | {"start": "2026-11-18T00:00:00Z"})

    history = capacity.price_history("eastus", SIZE, NOW)
    assert [price for _, price in history[:3]] == [
        Decimal("14.523664"),  # the day before, half was missing: a quarter of the way
        Decimal("8.441552"),
        Decimal("32.77"),
    ]
    assert history[0][0] == NOW // DAY * DAY
    assert capacity.spot_price("eastus", SIZE, NOW) == history[0][1]


@pytest.mark.parametrize(
    ("hours", "band"),
    [([16], "0-5"), ([16] * 9 + [4], "5-10"), ([16] * 5 + [4], "10-15"), ([16, 4], "20+")],
)
def test_the_eviction_band_is_what_the_recording_lost_per_hour(
    tmp_path: Path, hours: list[int], band: str
) -> None:
    entry = {"region": "eastus", "kind": "trace", "data": hours, "gap_seconds": 3600}

    assert over(tmp_path, entry).eviction_band("eastus", SIZE, NOW) == band


def test_a_region_that_is_told_by_zones_has_the_price_of_all_of_them(tmp_path: Path) -> None:
    empty = {"region": "eastus", "zone": "1", "kind": "constant", "capacity": 0}
    full = {"region": "eastus", "zone": "2", "kind": "constant", "capacity": 8}
    offer = catalog().offer(SIZE, "eastus")
    assert offer

    assert over(tmp_path, empty).spot_price("eastus", SIZE, NOW) == offer.on_demand
    assert over(tmp_path, empty, full).spot_price("eastus", SIZE, NOW) == offer.spot


@settings(max_examples=20)
@given(randoms, moments)
def test_prices_stay_between_spot_and_on_demand(trace: Random, now: float) -> None:
    offer = catalog().offer(SIZE, "eastus")
    assert offer
    prices = scarcity.history(offer, [trace], now)

    assert all(offer.spot <= price <= offer.on_demand for _, price in prices)
    assert [since for since, _ in prices] == sorted((s for s, _ in prices), reverse=True)
    assert prices[0][1] == scarcity.price(offer, [trace], now)


def over(folder: Path, *entries: object) -> SpotCapacity:
    base = folder / "base.json"
    base.write_text(json.dumps(list(entries)))
    return SpotCapacity(folder / "spot-capacity.json", base)
