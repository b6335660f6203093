"""The training loop. Every rank takes the same branch everywhere, or collectives hang.

A stop is checked before every micro-step. A half-done training step is then dropped: its gradients
are discarded, and the state before it is saved, with the random generators as they were.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from trainer.checkpoint import rng_state
from trainer.checkpoint.save_schedule import SaveSchedule
from trainer.checkpoint.saver import Saver
from trainer.contract import RunSpec, StepMetrics
from trainer.data.batch import Batch
from trainer.data.step_input import StepSource
from trainer.engine import deepspeed_engine as ds
from trainer.engine import ema, loss_scale, loss_spikes, progress_check
from trainer.engine.evaluation import Evaluation
from trainer.engine.lr_schedule import learning_rate_of
from trainer.engine.utilization import UtilizationMeter, count_tokens
from trainer.methods.descriptor import descriptor_of
from trainer.methods.interface import Method, scaled_loss
from trainer.process.journal import Journal
from trainer.process.sync_flags import FlagSync, SyncedFlags, sum_over_ranks
from trainer.rollout.kl_schedule import next_kl_weight
from trainer.rollout.reward_metrics import sum_rewards_over_ranks
from trainer.state import RankIdentity, TrainingState

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoopContext:
    """The objects that the loop works with."""

    spec: RunSpec
    identity: RankIdentity
    engine: Any
    method: Method
    source: StepSource
    evaluation: Evaluation | None
    saver: Saver
    flag_sync: FlagSync
    journal: Journal
    meter: UtilizationMeter
    now: Callable[[], float]


class NotFiniteError(Exception):
    """The loss or the gradients are infinite or NaN; another step would spoil the model.

    Retried like any error: a broken GPU causes it too, and another machine helps.
    """


def train(parts: LoopContext, state: TrainingState) -> tuple[TrainingState, bool]:
    """Train until the last step or a stop; return the state and whether the run is finished.

    Unless it is finished, the returned state is saved, or was never changed.
    """
    spec = parts.spec
    progress_check.require_rate(spec)
    saves = SaveSchedule(parts.saver, spec, parts.now, state.step, parts.journal.save_cost)
    state, stopped = _measure_before(parts, state)
    if stopped:
        return state, False
    while True:
        boundary = rng_state.capture_rng()
        if _is_evaluation_due(parts, state):
            state, stopped = _evaluate(parts, state)
            if stopped:
                break
        if state.step == parts.spec.total_steps:
            progress_check.require_learned(spec, state)
            if parts.flag_sync.sync_flags().is_stopping:
                break
            return state, True
        due = parts.identity.rank == 0 and saves.is_due(state.step + 1)
        state, flags = _step(parts, state, save_due=due)
        if flags.stop:
            break
        if flags.end:
            boundary = rng_state.capture_rng()
            break
        if flags.save and state.step < parts.spec.total_steps:
            saves.save_periodically(state, congested=flags.congested)
    log.info("stopping after step %d", state.step)
    saves.save_at_stop(state, boundary)
    return state, False


def _step(
    parts: LoopContext, state: TrainingState, *, save_due: bool
) -> tuple[TrainingState, SyncedFlags]:
    """Run one training step; return the state unchanged if a stop is requested meanwhile."""
    spec, engine, method, started_at = parts.spec, parts.engine, parts.method, parts.now()
    method.prepare_step(state.step + 1)
    prepared = parts.source.step(state)
    if prepared is None:
        return state, parts.flag_sync.sync_flags()
    batches, meter = prepared.batches, parts.meter
    grades = sum_rewards_over_ranks(prepared.figures, engine.device, spec.reinforcement)
    tokens, units, all_tokens = sum_over_ranks(
        sum(batch.targets for batch in batches),
        sum(method.units(batch) for batch in batches),
        sum(count_tokens(batch) for batch in batches),
        device=engine.device,
    )
    ds.set_learning_rate(engine, rate := learning_rate_of(spec, state.step + 1))
    if units:
        result, flags = _train_batches(parts, state, batches, int(units), save_due=save_due)
    else:
        result, flags = _skip_update(parts, state, save_due=save_due)
        tokens, all_tokens = 0.0, 0.0
    if result is None:
        return state, flags
    if spec.ema_decay:
        ema.update_average(engine, spec.ema_decay, state.step + 1)
    losses, spike = loss_spikes.record_loss(spec.spike_guard, state.losses, result.loss)
    metrics = StepMetrics(
        step=state.step + 1,
        loss=result.loss,
        learning_rate=rate,
        grad_norm=result.norm or 0.0,
        tokens=int(tokens),
        seconds=parts.now() - started_at,
        at=parts.now(),
        accuracy=result.accuracy,
        margin=result.margin if descriptor_of(spec).has_margin else None,
        loss_scale=loss_scale.scale_value(engine),
        skipped=result.norm is None,
        spike=spike,
        **grades.members,
    )
    metrics = replace(metrics, **meter.step_metrics(metrics.step, all_tokens, metrics.seconds))
    parts.journal.span_once("first_step", started_at, metrics.at)
    kl_beta = next_kl_weight(spec.reinforcement, prepared.beta, metrics.kl)
    moved = bool(result.norm) and rate > 0 and grades.differ
    experience = prepared.experience
    after = state.after_step(spec.global_batch, metrics, experience, kl_beta, losses, moved=moved)
    return _record(parts, after, grades.error), flags


@dataclass(frozen=True, kw_only=True)
class _StepResult:
    """The result of a step: means over its units."""

    loss: float = math.nan
    accuracy: float = math.nan
    margin: float | None = None
    norm: float | None = None  # of the gradients; None: nothing was updated


def _train_batches(
    parts: LoopContext,
    state: TrainingState,
    batches: Sequence[Batch],
    units: int,
    *,
    save_due: bool,
) -> tuple[_StepResult | None, SyncedFlags]:
    """Update the model; None when a stop is requested meanwhile."""
    engine, step = parts.engine, state.step + 1
    sums, flags = _accumulate(parts, batches, units, save_due=save_due)
    if sums is None:
        return None, flags
    loss_sum, correct_sum, margin_sum = sum_over_ranks(*sums, device=engine.device)
    _require_finite(loss_sum, "loss", step)
    norm = ds.update_parameters(engine)
    _require_finite(norm or 0.0, "gradient norm", step)
    loss, accuracy, margin = loss_sum / units, correct_sum / units, margin_sum / units
    return _StepResult(loss=loss, accuracy=accuracy, margin=margin, norm=norm), flags


def _skip_update(
    parts: LoopContext, state: TrainingState, *, save_due: bool
) -> tuple[_StepResult | None, SyncedFlags]:
    """Skip a step in which no rank has a target: weight decay and momentum would still update.

    In the first step check that a later one has a target, so that a run that cannot learn ends
    early.
    """
    if state.step == 0:
        units = parts.source.units(state, parts.method.units)
        flags = progress_check.require_targets(
            parts.spec, units, parts.flag_sync.sync_flags, parts.engine.device
        )
        if flags is not None:
            return None, flags
    flags = parts.flag_sync.sync_flags(save_due=save_due)
    if flags.stop:
        return None, flags
    ds.set_steps(parts.engine, state.step + 1)
    return _StepResult(), flags


def _accumulate(
    parts: LoopContext, batches: Sequence[Batch], units: int, *, save_due: bool
) -> tuple[tuple[torch.Tensor | float, ...] | None, SyncedFlags]:
    """Accumulate a step's gradients, and this rank's loss, correct units and margin.

    None when a stop is requested meanwhile.
    """
    engine, flags = parts.engine, SyncedFlags(stop=False, save=False, congested=False)
    loss, correct, margin = torch.zeros((), device=engine.device), 0, 0.0
    for batch in batches:
        flags = parts.flag_sync.sync_flags(save_due=save_due)
        if flags.stop:
            return None, flags
        with parts.meter.time_forward():
            scores = parts.method.scores(engine, batch.to(engine.device))
        ds.accumulate_gradients(engine, scaled_loss(scores.loss, units, parts.identity.world_size))
        ds.end_micro_step(engine)
        loss, correct = loss + scores.loss.detach(), correct + scores.correct
        margin = margin + scores.margin
    return (loss, correct, margin), flags


def _evaluate(parts: LoopContext, state: TrainingState) -> tuple[TrainingState, bool]:
    """Add the validation loss to the last step's metrics, unless a stop is requested."""
    assert parts.evaluation is not None
    assert state.metrics is not None
    parts.method.prepare_step(state.step)
    loss = parts.evaluation(parts.method)
    if loss is None:
        return state, True
    metrics = replace(state.metrics, valid_loss=loss)
    _warn_if_nothing_validated(parts, loss)
    return _record(parts, replace(state, metrics=metrics)), False


def _measure_before(parts: LoopContext, state: TrainingState) -> tuple[TrainingState, bool]:
    """Measure the validation loss before the first step, unless a stop is requested.

    It is measured as after the last step, so that the two compare. The random generators are
    restored: training is the same to the bit as without.
    """
    if parts.evaluation is None or state.step > 0:
        return state, False
    started_at, generators = parts.now(), rng_state.capture_rng()
    parts.method.prepare_step(parts.spec.total_steps)
    loss = parts.evaluation(parts.method)
    if loss is None:
        return state, True
    rng_state.restore_rng(generators)
    parts.journal.span("first_validation", started_at, parts.now())
    _warn_if_nothing_validated(parts, loss)
    log.info("before the first step: validation %.4f", loss)
    return replace(state, valid_loss_before=loss if math.isfinite(loss) else None), False


def _warn_if_nothing_validated(parts: LoopContext, loss: float) -> None:
    """Warn the user once that a validation measured nothing."""
    if math.isnan(loss):
        assert parts.spec.validation_file is not None
        why = progress_check.no_targets_message(parts.spec, parts.spec.validation_file.name)
        parts.journal.warn("no_validation", f"Nothing is validated: {why}")


def _record(parts: LoopContext, state: TrainingState, grader_error: str = "") -> TrainingState:
    spec, metrics = parts.spec, state.metrics
    assert metrics is not None
    parts.journal.metrics(metrics)
    parts.journal.progress(state.step)
    log.info(
        "step %d of %d: loss %.4f%s",
        state.step,
        spec.total_steps,
        metrics.loss,
        "" if metrics.valid_loss is None else f", validation {metrics.valid_loss:.4f}",
    )
    if metrics.spike is not None:
        parts.journal.warn("spike", loss_spikes.spike_message(spec.spike_guard, metrics))
    if state.unmoved and state.step == progress_check.WARN_AFTER_STEPS < spec.total_steps:
        parts.journal.warn("unmoved", progress_check.unchanged_message(spec, state))
    if grader_error:
        parts.journal.warn("grader", grader_error)
    loss_spikes.require_no_spike(spec.spike_guard, metrics)
    return state


def _is_evaluation_due(parts: LoopContext, state: TrainingState) -> bool:
    if parts.evaluation is None or state.metrics is None or state.metrics.valid_loss is not None:
        return False
    every = parts.spec.eval_steps
    return state.step == parts.spec.total_steps or (every > 0 and state.step % every == 0)


def _require_finite(value: float, name: str, step: int) -> None:
    if not math.isfinite(value):
        raise NotFiniteError(
            f"the {name} of step {step} is {value}; lower the learning rate or look at the data"
        )
