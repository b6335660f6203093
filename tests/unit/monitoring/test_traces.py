"""What our own attempts saw of Spot capacity, as traces that simulations read."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bench.policy.traces import read
from service.domain.spot.capacity_traces import (
    CapacitySample,
    CapacityTrace,
    HeldMachine,
    InvalidTrace,
    PriceChange,
    SpotPool,
    TraceWindow,
    build_trace,
)

BEGIN = datetime(2026, 11, 2, tzinfo=UTC)
PLACE = SpotPool("eastus", "Standard_ND96amsr_A100_v4")
WINDOW = TraceWindow(begins=BEGIN, ticks=12)


def at(ticks: float) -> datetime:
    return BEGIN + ticks * WINDOW.gap


def machine(begins: float, ends: float, hourly: str = "8") -> HeldMachine:
    return HeldMachine(at(begins), at(ends), Decimal(hourly))


def trace_of(machines: list[HeldMachine], samples: list[CapacitySample]) -> CapacityTrace:
    trace = build_trace(PLACE, WINDOW, machines, samples)
    assert trace is not None
    return trace


def test_machines_are_counted_as_long_as_they_are_held_if_anything_was_seen_in_time() -> None:
    trace = trace_of([machine(2, 6), machine(2, 5)], [CapacitySample(at(6), 0)])

    assert trace.counts == (2, 2, 2, 2, 2, 1, 0, 0, 0, 0, 0, 0)
    assert trace.observed == ((2, 7),)
    assert (
        build_trace(PLACE, WINDOW, [], [CapacitySample(at(-3), 4), CapacitySample(at(99), 0)])
        is None
    )


def test_what_nobody_saw_is_what_was_seen_last() -> None:
    given_up = trace_of([machine(2, 4)], [CapacitySample(at(4), 1)])
    refused_then_given = trace_of(
        [machine(8, 10)], [CapacitySample(at(3), 0), CapacitySample(at(10), 1)]
    )

    assert given_up.counts == (1,) * 12
    assert given_up.observed_share == 3 / 12
    assert refused_then_given.counts == (0,) * 8 + (1,) * 4
    assert refused_then_given.observed == ((3, 4), (8, 11))


def test_a_hold_from_before_the_window_counts_from_its_first_tick() -> None:
    trace = trace_of([machine(-5, 2)], [CapacitySample(at(2), 0)])
    refused_before = trace_of([machine(5, 12)], [CapacitySample(at(-3), 0)])

    assert trace.counts == (1, 1) + (0,) * 10
    assert refused_before.counts == (0,) * 5 + (1,) * 7
    assert refused_before.observed == ((5, 12),)


def test_prices_are_told_where_they_change() -> None:
    trace = trace_of([machine(-1, 3), machine(0.5, 3), machine(3, 5, "9"), machine(8, 9, "8")], [])

    assert trace.prices == tuple(PriceChange(t, Decimal(p)) for t, p in ((0, 8), (3, 9), (8, 8)))


def test_a_trace_is_read_by_the_benchmark_and_by_ourselves_as_it_was_written(
    tmp_path: Path,
) -> None:
    written = trace_of([machine(2, 6, "8.44"), machine(2, 5, "8.44")], [CapacitySample(at(6), 0)])
    (tmp_path / "eastus_size.json").write_text(json.dumps(written.as_dict()))

    (folder,) = read(tmp_path, gang=2)
    reread = CapacityTrace.from_dict(json.loads((tmp_path / "eastus_size.json").read_text()))

    assert (folder.gap_s, folder.zones) == (300, ("eastus_size",))
    assert folder.capacity == ((True,) * 5 + (False,) * 7,)
    assert reread == written
    assert reread.prices == (PriceChange(2, Decimal("8.44")),)


def test_a_trace_of_others_begins_where_it_is_told_to_and_says_what_is_missing() -> None:
    trace = CapacityTrace.from_dict({"metadata": {"gap_seconds": 195}, "data": [0, 4.0]}, BEGIN)

    assert (trace.counts, trace.begins, trace.observed_share) == ((0, 4), BEGIN, 1)
    assert trace.gap == timedelta(seconds=195)

    with pytest.raises(InvalidTrace, match=r"metadata\.start_time"):
        CapacityTrace.from_dict({"metadata": {"gap_seconds": 300}, "data": [1]})


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": [], "data": [1]},
        {"metadata": {"gap_seconds": 300}, "data": []},
        {"metadata": {"gap_seconds": 0}, "data": [1]},
        {"metadata": {"gap_seconds": "inf"}, "data": [1]},
        {"metadata": {"gap_seconds": 300}, "data": [-1]},
        {"metadata": {"gap_seconds": 300}, "data": [float("nan")]},
        {"metadata": {"gap_seconds": 300, "prices": [[0, "dear"]]}, "data": [1]},
        {"metadata": {"gap_seconds": 300, "start_time": "lately"}, "data": [1]},
    ],
)
def test_what_is_no_trace_is_refused_with_what_one_looks_like(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidTrace, match=r"trace|Counts"):
        CapacityTrace.from_dict(document, BEGIN)


def hourly(**metadata: object) -> dict[str, Any]:
    return {"metadata": {"gap_seconds": 3600, **metadata}, "data": [1, 2]}


@pytest.mark.parametrize(
    ("document", "because"),
    [
        ({"metadata": {"gap_seconds": 1e9}, "data": [1]}, "gap_seconds is 1 to 3600"),
        ({"metadata": {"gap_seconds": 3600}, "data": [1] * 4369}, "lasts 26 weeks at most"),
        ({"metadata": {"gap_seconds": 1}, "data": [1] * 30_001}, "1 to 30000 counts"),
        (hourly(start_time="9999-12-31T23:00:00"), "OverflowError"),
        (hourly(start_time="0001-01-01T00:00:00+14:00"), "OverflowError"),
        (hourly(seen=[[0, 3]]), "do not overlap"),
        (hourly(seen=[[-1, 1]]), "do not overlap"),
        (hourly(seen=[[0, 2], [1, 2]]), "do not overlap"),
        (hourly(prices=[[0, "nan"]]), "no price"),
        (hourly(prices=[[0, "-1"]]), "no price"),
        (hourly(prices=[[0, "1e400"]]), "no price"),
        (hourly(prices=[[2, "1"]]), "one of the counts"),
    ],
)
def test_what_would_hang_or_mislead_whoever_replays_it_is_refused(
    document: dict[str, Any], because: str
) -> None:
    with pytest.raises(InvalidTrace, match=because):
        CapacityTrace.from_dict(document, BEGIN)


def test_a_file_is_put_in_order_as_it_is_read() -> None:
    prices = [[1, "9"], [0, "7"], [0, "8"]]
    trace = CapacityTrace.from_dict(hourly(start_time="2026-11-02T02:00:00+02:00", prices=prices))

    assert (trace.begins, trace.begins.tzinfo) == (BEGIN, UTC)
    assert trace.prices == (PriceChange(0, Decimal(8)), PriceChange(1, Decimal(9)))


def test_of_one_tick_what_was_seen_last_counts() -> None:
    evicted_last = trace_of([], [CapacitySample(at(2.1), 4), CapacitySample(at(2.6), 0)])
    given_up_last = trace_of([], [CapacitySample(at(2.6), 4), CapacitySample(at(2.1), 0)])

    assert evicted_last.counts == (0,) * 12
    assert given_up_last.counts == (4,) * 12
