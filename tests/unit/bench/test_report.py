"""Output of the benchmarks, and the measures of bench.scale and bench.chaos."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.chaos.__main__ import counts
from bench.chaos.latency import quantiles
from bench.chaos.run import Counted
from bench.report import Measure, Report, percentile, print_measures, rounded
from bench.scale.measures import exponent, measures, scaled
from bench.scale.run import ScaleFindings, ScaleOptions, Window


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(1, 100))
def test_a_percentile_is_a_measured_value_with_enough_values_below(
    values: list[float], percent: float
) -> None:
    value = percentile(values, percent)

    assert value in values
    assert sum(v <= value for v in values) >= percent / 100 * len(values) - 1e-9
    assert percentile(list(range(1, 101)), 99) == 99
    assert (percentile([], 50), rounded(None)) == (None, None)


@pytest.mark.parametrize(
    ("value", "bar", "higher", "passes"),
    [(1, 1, False, True), (2, 1, False, False), (0, 1, True, False), (None, 0, False, True)],
)
def test_a_bar_is_held_or_not(value: int | None, bar: int, higher: bool, passes: bool) -> None:
    measure = Measure(name="x", value=value, unit="s", bar=bar, higher_is_better=higher)

    assert measure.passes is passes


def test_the_json_has_the_form_that_checks_rely_on(tmp_path: Path) -> None:
    measure = Measure(name="kills", value=3, unit="kills", bar=1, limit=0, rivals={"none": 4})
    Report(bench="recovery", measures=[measure], more={"seed": 1}).write(tmp_path / "out.json")
    report = json.loads((tmp_path / "out.json").read_text())

    assert {"bench", "commit", "machine", "measures", "seed"} == report.keys()
    assert report["bench"] == "recovery"
    assert {"cpu", "cores", "memory_gib"} <= report["machine"].keys()
    assert report["measures"] == [
        {
            "name": "kills",
            "value": 3,
            "unit": "kills",
            "bar": 1,
            "limit": 0,
            "rivals": {"none": 4},
        }
    ]


def test_the_table_says_which_bar_is_not_held() -> None:
    paper = io.StringIO()
    print_measures([Measure(name="leaked", value=2, unit="things", bar=0)], paper)

    assert "FAILS" in paper.getvalue()


def window(jobs: int, cpu: float, arm: int = 0) -> Window:
    """Return a window of ten seconds; ``cpu`` is the api's, in cores."""
    return Window(
        jobs=jobs,
        nodes=2 * jobs,
        seconds=10.0,
        cpu={"api": cpu * 10, "reconciler": 0.0, "postgres": 0.0, "nodes": 99.0},
        took=[0.01] * 99 + [0.5],
        failed=0,
        arm=arm,
        transactions=0,
        kib=1000.0 + jobs,
    )


@pytest.mark.parametrize(("power", "expected"), [(1.0, 0.0), (2.0, 1.0), (0.5, -0.5)])
def test_the_exponent_is_how_the_cost_of_one_job_grows(power: float, expected: float) -> None:
    windows = [window(jobs, cpu=0.001 * jobs**power) for jobs in (10, 100, 1000)]

    assert exponent(windows) == pytest.approx(expected)
    assert exponent(windows[:1]) is None


def test_measures_are_of_the_last_stage() -> None:
    findings = ScaleFindings(windows=[window(10, 0.1), window(100, 0.5, arm=20)], kib_empty=1000.0)
    findings.burst = (100, 2.0, {"api": 1.0, "reconciler": 1.0, "postgres": 1.0, "nodes": 5.0})
    findings.cancel = (50, 0.5, 1.0, {"api": 0.5, "reconciler": 0.5, "postgres": 0.0, "nodes": 9.0})
    findings.decided_p99 = 1.5
    values = {m.name: m.value for m in measures(findings)}
    nothing = {m.name: m.value for m in measures(ScaleFindings())}

    assert (nothing["live_jobs"], nothing["growth_exponent"]) == (None, None)
    assert "heartbeat_p99_ms" not in nothing
    assert values["nodes"] == 200
    assert values["heartbeats_per_s"] == 10
    assert values["heartbeat_p99_ms"] == 10
    assert values["arm_calls_per_node_hour"] == 36  # 20 in 10 s, of 200 nodes
    assert values["kib_per_job"] == 1
    assert values["eviction_burst_s"] == scaled(100, 2.0, 10_000) == 200
    assert values["eviction_burst_cpu_s"] == 300
    assert values["cancel_2000_s"] == values["cancel_2000_cpu_s"] == 40
    assert values["notice_to_decision_s_p99"] == 1.5


def test_jobs_come_in_stages_from_a_hundredth_on() -> None:
    assert ScaleOptions(jobs=5000, nodes=10_000, seconds=1).stages == [50, 500, 1666, 5000]
    assert ScaleOptions(jobs=60, nodes=120, seconds=1).stages == [1, 6, 20, 60]
    assert ScaleOptions(jobs=1, nodes=1, seconds=1).stages == [1]


PROMISES = ("unfinished", "forgotten", "leaked", "disordered")


@pytest.mark.parametrize("promise", PROMISES)
def test_one_broken_promise_fails_the_run(promise: str) -> None:
    counted = Counted(attempts=3, swept={"rk-1"})
    by_name = {m.name: m for m in counts(2, counted, [1, 1])}
    assert by_name["left_to_the_sweep"].value == 1
    assert all(m.passes for m in by_name.values()), "what the sweep mends fails nothing"

    getattr(counted, promise).append("job-1")

    assert not all(m.passes for m in counts(2, counted, [1, 1]))


def test_a_late_decision_after_a_notice_fails_and_silence_cannot_be_known_before_its_time() -> None:
    late = {m.name: m for m in quantiles("notice", ([1.0, 2.5], [3.0]), 30.0)}
    silent = {m.name: m for m in quantiles("silence", ([31.0], [32.0]), 30.0)}

    assert not late["notice_to_decision_s_p99"].passes
    assert silent["silence_to_decision_s_p99"].passes
    assert silent["silence_to_decision_s_p99"].limit == 30.0
