"""Output of the benchmarks."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.report import Measure, Report, percentile, print_measures, rounded


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(1, 100))
def test_a_percentile_is_a_measured_value_with_enough_values_below(
    values: list[float], percent: float
) -> None:
    found = percentile(values, percent)

    assert found in values
    assert sum(v <= found for v in values) >= percent / 100 * len(values) - 1e-9


def test_of_a_hundred_values_the_99th_percentile_is_the_last_but_one() -> None:
    assert percentile(list(range(1, 101)), 99) == 99


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 50) is None
    assert rounded(None) is None


@pytest.mark.parametrize(
    ("value", "bar", "higher", "passes"),
    [(1, 1, False, True), (2, 1, False, False), (2, 1, True, True), (0, 1, True, False)],
)
def test_a_bar_is_held_or_not(value: int, bar: int, higher: bool, passes: bool) -> None:
    measure = Measure(name="x", value=value, unit="s", bar=bar, higher_is_better=higher)

    assert measure.passes is passes


def test_what_was_not_measured_breaks_nothing() -> None:
    assert Measure(name="x", value=None, unit="s", bar=0).passes


def test_the_json_has_the_form_that_checks_rely_on(tmp_path: Path) -> None:
    measure = Measure(name="kills", value=3, unit="kills", bar=1, limit=0, rivals={"none": 4})
    Report(bench="recovery", measures=[measure], more={"seed": 1}).write(tmp_path / "out.json")
    told = json.loads((tmp_path / "out.json").read_text())

    assert {"bench", "commit", "machine", "measures", "seed"} == told.keys()
    assert told["bench"] == "recovery"
    assert {"cpu", "cores", "memory_gib"} <= told["machine"].keys()
    assert told["measures"] == [
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
