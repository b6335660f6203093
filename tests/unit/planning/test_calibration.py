"""What measured jobs make of the roofline's word: nearer to them, and narrower."""

from dataclasses import replace

import pytest

from service.domain.performance.calibration import (
    CONFIDENT_STEPS,
    MeasuredJob,
    StepTimeSample,
    calibrate,
    experience,
)
from service.domain.performance.throughput import StepTime

ROOFLINE = StepTime(seconds=10.0, low=7.0, high=15.0, compute=9.0, network=1.0, doubt="Who knows.")
ND, H100 = "Standard_ND96amsr_A100_v4", "Standard_ND96isr_H100_v5"
LIKE = MeasuredJob(
    model="llama",
    method="supervised",
    adapters="lora",
    vm_size=ND,
    predicted=0.0,
    measured=0.0,
    steps=0,
)
SLOWER = replace(LIKE, predicted=5.0, measured=6.0, steps=200)


def job_off_by(ratio: float, *, steps: int = CONFIDENT_STEPS, alike: bool = True) -> StepTimeSample:
    return StepTimeSample(predicted=1.0, measured=ratio, steps=steps, is_same_kind=alike)


def width(step: StepTime) -> float:
    return step.high / step.low


def test_one_job_like_it_settles_most_several_settle_it_and_other_jobs_say_less() -> None:
    assert calibrate(ROOFLINE, []) == ROOFLINE

    one, many = (calibrate(ROOFLINE, [job_off_by(1.3)] * n) for n in (1, 8))
    assert 12.0 < one.seconds < many.seconds < 13.0
    assert many.seconds == pytest.approx(13.0, rel=0.01)
    assert width(many) < width(one) < width(ROOFLINE)

    alike, unlike = (calibrate(ROOFLINE, [job_off_by(1.3, alike=a)]) for a in (True, False))
    assert ROOFLINE.seconds < unlike.seconds < alike.seconds
    assert width(alike) < width(unlike) < width(ROOFLINE)


def test_what_could_not_be_promised_is_promised_once_a_job_like_it_was_measured() -> None:
    assert calibrate(ROOFLINE, [job_off_by(1.3)]).doubt == ""
    assert calibrate(ROOFLINE, [job_off_by(1.3, steps=10)]).doubt == ROOFLINE.doubt
    assert calibrate(ROOFLINE, [job_off_by(1.3, alike=False)]).doubt == ROOFLINE.doubt


def test_past_jobs_on_other_gpus_or_off_by_far_say_nothing() -> None:
    elsewhere = replace(SLOWER, vm_size=H100)
    unknown = replace(SLOWER, vm_size="Standard_D4s_v5")

    assert experience([elsewhere, unknown], LIKE) == ()
    assert experience([SLOWER], LIKE) == (
        StepTimeSample(predicted=5.0, measured=6.0, steps=CONFIDENT_STEPS),
    )

    strange = [replace(SLOWER, measured=measured) for measured in (0.5, 50.0, 0.0)]
    assert experience(strange, LIKE) == ()


@pytest.mark.parametrize(
    "change", [{"model": "qwen"}, {"method": "dpo"}, {"adapters": "qlora"}, {"adapters": ""}]
)
def test_past_jobs_of_another_kind_are_not_alike(change: dict[str, str]) -> None:
    (job,) = experience([replace(SLOWER, **change)], LIKE)  # type: ignore[arg-type] # names

    assert not job.is_same_kind
