"""Calibrate predicted step times with the measured ones of earlier jobs.

On logarithms all is normal: prior times likelihood. The prior is the roofline with its interval.
The stack's deviation from the roofline is one unknown; every measured job informs it, up to the
variation between jobs. A job that measures itself needs none of this: its forecast uses its own
step time (`service/domain/planning/forecast.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.domain.performance.throughput import StepTime
from service.domain.performance.vm_catalogue import lookup
from trainer.contract import Lora

CONFIDENT_STEPS = 50  # steps, after which a job's own pace is believed
_P90 = 1.2816  # standard deviations
_ALIKE = 0.055  # that jobs of the same model, method and GPUs differ by: see `bench.planner`
_UNLIKE = 0.15  # that any two jobs of the same training program differ by
_JITTER = 0.10  # of one step against the next, evaluations and slow readers of data included
_MAX_LOG_RATIO = math.log(5)  # further off, something else was measured than was predicted


@dataclass(frozen=True, kw_only=True)
class StepTimeSample:
    """The measured step time of a job, beside the roofline's prediction."""

    predicted: float  # seconds of a step, by the roofline alone
    measured: float
    steps: int  # that were measured
    is_same_kind: bool = True  # same model, method and GPUs as the job that is planned

    @property
    def ratio(self) -> float:
        """Return the logarithm of measured to predicted."""
        return math.log(self.measured / self.predicted)

    @property
    def variance(self) -> float:
        """Return the variance of that logarithm as evidence for the planned job."""
        differs = _ALIKE if self.is_same_kind else _UNLIKE
        return differs**2 + _JITTER**2 / self.steps


@dataclass(frozen=True, kw_only=True)
class MeasuredJob:
    """A measured job as the database has it."""

    model: str
    method: str
    adapters: str  # "", "lora" or "qlora"
    vm_size: str
    predicted: float  # seconds of a step there, by the roofline alone
    measured: float
    steps: int


def planned_job(model: str, method: str, lora: Lora | None, vm_size: str) -> MeasuredJob:
    """Return the planned job in the form of a measured one, without measurements."""
    adapters = "" if lora is None else "qlora" if lora.quantized else "lora"
    return MeasuredJob(
        model=model,
        method=method,
        adapters=adapters,
        vm_size=vm_size,
        predicted=0.0,
        measured=0.0,
        steps=0,
    )


def experience(past: Sequence[MeasuredJob], planned: MeasuredJob) -> tuple[StepTimeSample, ...]:
    """Return the evidence of past jobs for the planned one.

    Only jobs on the same GPU family count. A ratio beyond a factor of five is a different kind of
    measurement and is ignored.
    """
    planned_sku = lookup(planned.vm_size)
    return tuple(
        StepTimeSample(
            predicted=job.predicted,
            measured=job.measured,
            steps=max(min(job.steps, CONFIDENT_STEPS), 1),
            is_same_kind=_job_kind(job) == _job_kind(planned),
        )
        for job in past
        if planned_sku and (sku := lookup(job.vm_size)) and sku.family == planned_sku.family
        if job.measured > 0 and job.predicted > 0
        if abs(math.log(job.measured / job.predicted)) < _MAX_LOG_RATIO
    )


def _job_kind(job: MeasuredJob) -> tuple[str, str, str]:
    return (job.model, job.method, job.adapters)


def calibrate(step: StepTime, samples: Sequence[StepTimeSample]) -> StepTime:
    """Return the step time with its 80 % interval, given the evidence; unchanged without any.

    With much evidence the mean tends to theirs, and the interval to the variation between jobs. A
    step time without a promise gets one once a similar job was measured.
    """
    if not samples:
        return step
    prior = _spread(step) ** 2
    precision = 1 / prior + sum(1 / s.variance for s in samples)
    bias = sum(s.ratio / s.variance for s in samples) / precision
    differs = _ALIKE if any(s.is_same_kind for s in samples) else _UNLIKE
    spread = math.sqrt(1 / precision + differs**2)
    doubt = (
        "" if any(s.is_same_kind and s.steps >= CONFIDENT_STEPS for s in samples) else step.doubt
    )
    return _scale_step(step, step.seconds * math.exp(bias), spread, doubt)


def _spread(step: StepTime) -> float:
    """Return the standard deviation of the logarithm, from the 80 % interval."""
    return math.log(step.high / step.low) / (2 * _P90)


def _scale_step(step: StepTime, seconds: float, spread: float, doubt: str) -> StepTime:
    scale = seconds / step.seconds
    return replace(
        step,
        seconds=seconds,
        low=seconds * math.exp(-_P90 * spread),
        high=seconds * math.exp(_P90 * spread),
        compute=step.compute * scale,
        network=step.network * scale,
        doubt=doubt,
        roofline=step.roofline or step.seconds,
    )
