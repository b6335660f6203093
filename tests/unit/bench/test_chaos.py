"""Measures of bench.chaos: broken promises and latencies."""

import pytest

from bench.chaos.__main__ import counts
from bench.chaos.latency import quantiles
from bench.chaos.run import Counted

PROMISES = ("unfinished", "forgotten", "leaked", "disordered")


@pytest.mark.parametrize("promise", PROMISES)
def test_one_broken_promise_fails_the_run(promise: str) -> None:
    counted = Counted(attempts=3, swept={"rk-1"})
    found = {m.name: m for m in counts(2, counted, [1, 1])}
    assert found["left_to_the_sweep"].value == 1
    assert all(m.passes for m in found.values()), "what the sweep mends fails nothing"

    getattr(counted, promise).append("job-1")

    assert not all(m.passes for m in counts(2, counted, [1, 1]))


def test_a_late_decision_after_a_notice_fails_and_silence_cannot_be_known_before_its_time() -> None:
    late = {m.name: m for m in quantiles("notice", ([1.0, 2.5], [3.0]), 30.0)}
    silent = {m.name: m for m in quantiles("silence", ([31.0], [32.0]), 30.0)}

    assert not late["notice_to_decision_s_p99"].passes
    assert silent["silence_to_decision_s_p99"].passes
    assert silent["silence_to_decision_s_p99"].limit == 30.0
