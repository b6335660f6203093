"""Arithmetic of the scale benchmark, on invented numbers."""

import pytest

from bench.scale.measures import exponent, measures, scaled
from bench.scale.run import ScaleFindings, ScaleOptions, Window


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
    found = ScaleFindings(windows=[window(10, 0.1), window(100, 0.5, arm=20)], kib_empty=1000.0)
    found.burst = (100, 2.0, {"api": 1.0, "reconciler": 1.0, "postgres": 1.0, "nodes": 5.0})
    found.cancel = (50, 0.5, 1.0, {"api": 0.5, "reconciler": 0.5, "postgres": 0.0, "nodes": 9.0})
    found.decided_p99 = 1.5
    values = {m.name: m.value for m in measures(found)}
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
