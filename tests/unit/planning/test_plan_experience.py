"""Plans and what past jobs took: learnt from, and told apart from what the roofline had said."""

from dataclasses import replace

import pytest

from service.domain.performance.calibration import MeasuredJob
from service.domain.planning.plan import make_plan
from service.domain.training.recipe import Training
from tests.unit.planning.test_plan import LLAMA_70B, REQUEST, offer
from trainer.contract import Lora


def past(ratio: float, **change: str) -> MeasuredJob:
    """Return a job like REQUEST's that took ``ratio`` times as long as the roofline predicted."""
    job = MeasuredJob(
        model="llama",
        method="supervised",
        adapters="",
        vm_size="Standard_ND96amsr_A100_v4",
        predicted=4.0,
        measured=4.0 * ratio,
        steps=500,
    )
    return replace(job, **change)  # type: ignore[arg-type] # its texts only


def test_a_plan_learns_from_jobs_like_it_and_still_says_what_it_would_have_thought() -> None:
    first = make_plan(REQUEST).chosen
    second = make_plan(replace(REQUEST, model="llama", past=(past(1.4),) * 4)).chosen

    assert second.seconds_per_step == pytest.approx(1.4 * first.seconds_per_step, rel=0.03)
    assert second.roofline_seconds == first.roofline_seconds == first.seconds_per_step
    assert second.duration_p90 / second.duration_p50 < first.duration_p90 / first.duration_p50
    assert second.seconds_per_step_p10 < second.seconds_per_step < second.seconds_per_step_p90


def test_a_plan_that_waits_for_the_network_promises_no_time_until_a_job_like_it_was_measured() -> (
    None
):
    """Ethernet of 80 Gb/s between eight machines, and ZeRO-3 over it."""
    ethernet = replace(
        REQUEST,
        arch=LLAMA_70B,
        training=Training(lora=Lora(rank=16, alpha=32, dropout=0.0), zero_stage=3, micro_batch=1),
        offers=(offer("Standard_NC96ads_A100_v4"),),
        nodes=2,
        model="llama",
    )
    known = past(1.0, adapters="lora", vm_size="Standard_NC96ads_A100_v4")

    assert "waits for the network" in " ".join(make_plan(ethernet).warnings)
    assert make_plan(replace(ethernet, past=(known,))).warnings == ()
    assert make_plan(REQUEST).warnings == ()
