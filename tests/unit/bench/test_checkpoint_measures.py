"""Arithmetic of the checkpoint benchmark, on invented numbers."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bench.checkpoint.case import GIB, LIMIT, REKINDLE, CheckpointCase, CheckpointTimes
from bench.checkpoint.limits import Raw
from bench.checkpoint.measures import (
    HEAD,
    ContestantRow,
    cells,
    interval,
    measures,
    row,
    stall_percent,
)
from bench.checkpoint.run import needed_gib

CASE = CheckpointCase(contestant=REKINDLE, mib=2048, ranks=2, tls=False, url="", folder="")
RAW = Raw(save_gib_s=8.0, load_gib_s=4.0, cpu_s_per_gib=0.1)


def _rank(durable: list[float], *, loop: list[float], same: bool = True) -> CheckpointTimes:
    return CheckpointTimes(
        state_bytes=GIB,
        blocked_s=[0.2] * len(durable),
        durable_s=durable,
        save_cpu_s=[1.0, 3.0],
        load_s=[2.0, 1.0],
        load_cpu_s=[0.5, 0.5],
        twin_s=[1.0, 1.0],
        loop_s=loop,
        loop_blocked_s=0.25,
        save_memory=GIB // 2,
        load_memory=None,
        same=same,
    )


def _row(*ranks: CheckpointTimes, fetched: int = 4 * GIB) -> ContestantRow:
    return row(CASE, ranks, stored=6 * GIB, fetched=fetched)


def test_a_case_is_as_slow_as_its_slowest_rank_and_costs_what_all_cost() -> None:
    row = _row(_rank([4.0, 9.0], loop=[1.5, 1.25]), _rank([8.0, 2.0], loop=[1.0, 1.0]))

    assert (row.save_s, row.save_gib_s) == (8.0, 2.0 / 8.0), "the best try counts"
    assert (row.load_s, row.load_gib_s) == (1.0, 2.0)
    assert (row.save_cpu_s_per_gib, row.load_cpu_s_per_gib) == (1.0, 0.5)
    assert (row.save_memory_ratio, row.load_memory_ratio) == (0.5, None)
    assert row.stored_ratio == 1.0  # two alone, one in the loop, 2 GiB each
    assert row.stall_s == 0.75, "longer than its twin"


def test_a_stall_is_never_less_than_the_call_itself_and_needs_a_loop() -> None:
    row, none = (_row(*[_rank([1.0, 1.0], loop=loop)] * 2) for loop in ([0.9, 0.9], []))

    assert row.stall_s == 0.25
    assert (none.stall_s, stall_percent(none)) == (None, None)
    assert len(cells(none)) == len(HEAD)


def test_bytes_that_differ_or_did_not_come_from_the_sink_do_not_count() -> None:
    intact, broken = (_rank([1.0, 1.0], loop=[], same=same) for same in (True, False))

    assert _row(intact, intact).same
    assert not _row(intact, intact, fetched=4 * GIB - 1).same
    assert cells(_row(intact, broken))[-1] == "DIFFER"


@given(st.floats(0.001, 100), st.floats(0.001, 100), st.floats(0.01, 0.9))
def test_saves_never_come_faster_than_they_are_stored(
    stall: float, save: float, evicted: float
) -> None:
    assert interval(stall, save, evicted) >= save
    assert interval(2 * stall, save, evicted) >= interval(stall, save, evicted)


def test_ours_is_shown_with_its_bars_its_limits_and_its_rivals() -> None:
    ours = _row(_rank([1.0, 1.0], loop=[1.5]), _rank([1.0, 1.0], loop=[1.5]))
    rival = replace(ours, contestant="other", save_s=2.0)
    most = replace(ours, contestant=LIMIT, stall_s=None, save_s=0.5)
    values = {m.name: m for m in measures([ours, rival, most], ours, RAW)}

    assert {
        *("stall_pct", "save_ratio_to_limit", "load_ratio_to_limit"),
        *("cpu_s_per_gib", "emergency_s", "reshard_s"),
    } <= set(values)
    assert (values["stall_pct"].bar, values["stall_pct"].limit) == (1.0, 0)
    assert values["save_ratio_to_limit"].value == 0.5
    assert values["save_ratio_to_limit"].rivals == {"other": 0.25}
    assert values["save_ratio_to_sockets"].value == 0.25
    assert values["reshard_s"].value == 1.0


def test_without_a_limit_in_the_run_there_is_no_ratio_to_it() -> None:
    ours = _row(_rank([1.0, 1.0], loop=[]), _rank([1.0, 1.0], loop=[]))
    values = {m.name: m.value for m in measures([ours], None, RAW)}

    assert values["save_ratio_to_limit"] is None
    assert values["reshard_s"] is None


def test_a_quarter_of_a_gib_on_two_ranks_fits_a_small_machine_and_four_on_four_fit_24_gib() -> None:
    assert needed_gib(replace(CASE, mib=256)) < 4
    assert needed_gib(replace(CASE, mib=4096, ranks=4)) < 27
