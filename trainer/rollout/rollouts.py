"""The step source and the evaluation of reinforcement learning, from the model's own answers."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deepspeed.runtime.zero.offload_config import OffloadStateTypeEnum

from trainer.checkpoint.fragments import optimizer_step, set_optimizer_step
from trainer.contract import InputFile, Reinforcement, RunSpec
from trainer.data.batch import Batch
from trainer.data.order import micro_batch_samples
from trainer.data.prompts import Prompts
from trainer.data.step_input import StepInput, StepSource
from trainer.engine.evaluation import Evaluation
from trainer.graders.answer import Grader
from trainer.graders.build import make_grader
from trainer.methods.interface import Method
from trainer.methods.reference_model import make_reference
from trainer.methods.reinforcement import log_probabilities_and_values
from trainer.model.eval_mode import evaluation_mode
from trainer.model.precision import dtype_of
from trainer.model.tokenizer import base_folder
from trainer.process.sync_flags import FlagSync, sum_over_ranks
from trainer.rollout.advantages import generalized_advantages
from trainer.rollout.answer_batch import AnswerBatch, answer_batch
from trainer.rollout.collector import RolloutCollector
from trainer.rollout.experience import GradedAnswer, ReplayState
from trainer.rollout.kl_schedule import kl_weight
from trainer.rollout.sampler import Sampler
from trainer.rundir import RunDir
from trainer.state import RankIdentity, TrainingState

EPSILON = 1e-8  # added to the deviation of all advantages of a step


class RolloutSource:
    """Source of training steps; all its state is in the training state."""

    def __init__(
        self, collector: RolloutCollector, settings: Reinforcement, identity: RankIdentity
    ) -> None:
        self._collector, self._settings, self._identity = collector, settings, identity
        self._spec: RunSpec = collector.spec

    def step(self, state: TrainingState) -> StepInput | None:
        """Return the input of the step after this state; run a rollout when it is due."""
        beta = kl_weight(self._settings, state.kl_beta, state.step + 1, self._spec.total_steps)
        experience, figures = state.experience, None
        if state.step % self._settings.steps_per_rollout == 0:
            with offload_optimizer(self._collector.engine, self._spec.rollout_offload):
                rollout = self._collector.run_rollout(
                    self._samples_to_next_rollout(state), beta, state.step
                )
            if rollout is None:
                return None
            experience, figures = replace(experience, waiting=tuple(rollout[0])), rollout[1]
        fresh_rows = self._new_answers(experience, state.consumed_samples)
        micros = self._add_replay(fresh_rows, experience, state.step)
        batches, micros = self._batches(micros, beta)
        used = {(row.sample, row.number): row for micro in micros for row in micro}
        return StepInput(
            batches=batches,
            experience=self._next_replay_state(experience, state, used),
            beta=beta,
            figures=figures,
        )

    def units(self, state: TrainingState, units: Callable[[Batch], int]) -> Iterator[int]:  # noqa: ARG002
        """Yield how many prompts leave room for an answer: no answers exist yet."""
        spec, identity = self._spec, self._identity
        last = spec.total_steps * spec.global_batch
        rows = self._collector.rows_of_samples(range(state.consumed_samples, last))
        for positions in micro_batch_samples(
            0, len(rows), spec.micro_batch, identity.world_size, identity.rank
        ):
            yield sum(self._collector.leaves_room(rows[position]) for position in positions)

    def _samples_to_next_rollout(self, state: TrainingState) -> list[list[int]]:
        """Return this rank's samples up to the next rollout, by micro-batch."""
        steps = min(self._settings.steps_per_rollout, self._spec.total_steps - state.step)
        micros = []
        for step in range(steps):
            consumed = state.consumed_samples + step * self._spec.global_batch
            micros += self._samples(consumed)
        return micros

    def _samples(self, consumed: int) -> list[list[int]]:
        spec, identity = self._spec, self._identity
        return micro_batch_samples(
            consumed, spec.global_batch, spec.micro_batch, identity.world_size, identity.rank
        )

    def _new_answers(self, experience: ReplayState, consumed: int) -> list[list[GradedAnswer]]:
        return [
            [row for sample in micro for row in experience.waiting_answers(sample)]
            for micro in self._samples(consumed)
        ]

    def _add_replay(
        self, micros: list[list[GradedAnswer]], experience: ReplayState, step: int
    ) -> list[list[GradedAnswer]]:
        """Add replayed answers to the micro-batches, up to the requested share."""
        share, identity = self._settings.replay_share, self._identity
        every = round(share / (1 - share) * self._spec.global_batch * self._settings.answers)
        count = (
            every * (identity.rank + 1) // identity.world_size
            - every * identity.rank // identity.world_size
        )
        old = experience.draw_replay(count, self._spec.seed, step, identity.rank)
        return [micro + old[n :: len(micros)] for n, micro in enumerate(micros)]

    def _next_replay_state(
        self,
        experience: ReplayState,
        state: TrainingState,
        used: dict[tuple[int, int], GradedAnswer],
    ) -> ReplayState:
        settings = self._settings
        keep = settings.replay_capacity // self._identity.world_size if settings.replay_share else 0
        after = state.consumed_samples + self._spec.global_batch
        old = {(row.sample, row.number) for row in experience.replay}
        return experience.after_step(
            [row for name, row in used.items() if name not in old],
            consumed=after,
            oldest=state.step + 1 - settings.replay_max_age,
            capacity=keep,
        )

    def _batches(
        self, micros: list[list[GradedAnswer]], beta: float
    ) -> tuple[list[AnswerBatch], list[list[GradedAnswer]]]:
        """Collate the answers; with a critic, compute advantages and returns first."""
        pad_id, least = self._collector.tokenizer.pad_token_id, self._settings.answers
        if self._settings.algorithm != "ppo":
            return [answer_batch(rows, pad_id, least=least, beta=beta) for rows in micros], micros
        valued_micros = [self._with_values(rows, beta) for rows in micros]
        mean, deviation = self._mean_and_deviation([j.advantages for j in valued_micros])
        batches = [
            answer_batch(
                j.rows,
                pad_id,
                least=least,
                beta=beta,
                advantages=(j.advantages - mean) / (deviation + EPSILON),
                returns=j.returns,
            )
            for j in valued_micros
        ]
        return batches, [j.rows for j in valued_micros]

    def _with_values(self, rows: Sequence[GradedAnswer], beta: float) -> "_Valued":
        """Compute values, advantages and returns with today's critic, also of old answers."""
        collector = self._collector
        batch = answer_batch(rows, collector.tokenizer.pad_token_id, least=self._settings.answers)
        batch = batch.to(collector.engine.device)
        with torch.no_grad(), evaluation_mode(collector.engine):
            _, value_N = log_probabilities_and_values(
                collector.engine, batch, self._settings.temperature
            )
        flat = value_N.cpu().numpy()
        ends = np.cumsum([0, *(row.tokens for row in rows)])
        values = [flat[a:b] for a, b in pairwise(ends)]
        advantages = [
            generalized_advantages(
                _rewards(row, beta), v.astype(np.float64), self._settings.gae_lambda
            )
            for row, v in zip(rows, values, strict=True)
        ]
        empty = np.zeros(0)
        return _Valued(
            rows=[
                row if len(row.values) else replace(row, values=v)
                for row, v in zip(rows, values, strict=True)
            ],
            advantages=np.concatenate([empty, *advantages]),
            returns=np.concatenate([empty, *advantages]) + flat,
        )

    def _mean_and_deviation(self, parts: Sequence[Any]) -> tuple[float, float]:
        """Return mean and standard deviation over all ranks; collective."""
        flat = np.concatenate(parts)
        device = self._collector.engine.device
        total, count = sum_over_ranks(float(flat.sum()), len(flat), device=device)
        mean = total / max(count, 1)
        (squares,) = sum_over_ranks(float(((flat - mean) ** 2).sum()), device=device)
        return mean, (squares / max(count, 1)) ** 0.5


@dataclass(frozen=True, kw_only=True)
class _Valued:
    """A micro-batch with its advantages and returns."""

    rows: list[GradedAnswer]
    advantages: Any
    returns: Any


def _rewards(row: GradedAnswer, beta: float) -> Any:  # noqa: ANN401
    """Return each token's KL penalty, with the grade added to the last one [tokens], fp64."""
    rewards = np.zeros(row.tokens)
    if len(row.reference):
        rewards -= beta * (row.behaviour.astype(np.float64) - row.reference)
    rewards[-1] += row.grade
    return rewards


_STATES = [OffloadStateTypeEnum.optim_states, OffloadStateTypeEnum.hp_params]


@contextmanager
def offload_optimizer(engine: Any, enabled: bool) -> Iterator[None]:  # noqa: ANN401 - deepspeed is untyped
    """Offload within the context; nothing may be saved or updated. Reloads the same bits."""
    if not enabled:
        yield
        return
    engine.offload_states(include=_STATES)
    try:
        yield
    finally:
        engine.reload_states()
        set_optimizer_step(engine, optimizer_step(engine))  # AdamW's counts stay on the host


class RewardEvaluation:
    """Negated mean grade of the most likely answer to each prompt."""

    def __init__(self, collector: RolloutCollector, identity: RankIdentity) -> None:
        self._collector, self._identity = collector, identity

    def __call__(self, method: Method) -> float | None:  # noqa: ARG002 - no loss is asked for
        """Return the negated mean over the prompts with room for an answer; NaN for none."""
        total, count = 0.0, 0.0
        if self._collector.stop():
            return None
        with offload_optimizer(self._collector.engine, self._collector.spec.rollout_offload):
            for rows in self._groups():
                grades = self._grades(rows)
                if self._collector.stop():  # answers may have been cut short
                    return None
                total, count = total + sum(grades), count + len(grades)
        total, count = sum_over_ranks(total, count, device=self._collector.engine.device)
        return -total / count if count else math.nan

    def _groups(self) -> list[list[int]]:
        """Return this rank's rows; as many groups on every rank."""
        rows, at_once = len(self._collector.prompts), self._collector.settings.at_once
        return micro_batch_samples(0, rows, at_once, self._identity.world_size, self._identity.rank)

    def _grades(self, rows: Sequence[int]) -> list[float]:
        """Grade the prompts with room for an answer; failed grades count 0."""
        collector = self._collector
        longest = collector.spec.max_seq_len
        prompts = [collector.prompts[row] for row in rows]
        fitting = [prompt for prompt in prompts if len(prompt.ids) < longest]
        answers = collector.sampler.answers([prompt.ids for prompt in fitting], None)
        cut = [
            (p, collector.cut_to_context(p, answer))
            for p, answer in zip(fitting, answers, strict=True)
        ]
        return [grade.score for grade in collector.grade(cut)]


def build_rollout_source(
    spec: RunSpec,
    rundir: RunDir,
    identity: RankIdentity,
    engine: Any,  # noqa: ANN401
    tokenizer: Any,  # noqa: ANN401
    flag_sync: FlagSync,
    config: dict[str, Any],
    base: Path,
) -> tuple[StepSource, Evaluation | None]:
    """Return the source of graded answers and the evaluation on the validation file."""
    settings = spec.reinforcement
    assert settings is not None
    needs_reference = bool(settings.beta or settings.beta_end or settings.kl_target)

    sampler = Sampler(engine, tokenizer, settings, spec.seed, flag_sync.is_stop_requested_here)
    judge = _reward_model(spec, rundir, engine)
    folder = rundir.root / "grader" / f"rank-{identity.rank:05d}"
    grader = make_grader(settings.grader, folder, judge)
    reference = make_reference(engine, base, spec, config) if needs_reference else None

    def collector(file: InputFile, stop: Callable[[], bool]) -> RolloutCollector:
        return RolloutCollector(
            spec=spec,
            engine=engine,
            tokenizer=tokenizer,
            prompts=Prompts(rundir.input(file.path), tokenizer, spec),
            sampler=sampler,
            grader=grader,
            reference=reference,
            stop=stop,
            stop_here=flag_sync.is_stop_requested_here,
            now=time.monotonic,
        )

    training = collector(spec.training_file, lambda: flag_sync.sync_flags().is_stopping)
    source = RolloutSource(training, settings, identity)
    if spec.validation_file is None:
        return source, None
    validation = collector(spec.validation_file, lambda: flag_sync.sync_flags().is_stopping)
    return source, RewardEvaluation(validation, identity)


def _reward_model(spec: RunSpec, rundir: RunDir, engine: Any) -> Grader | None:  # noqa: ANN401
    """Return the reward model that the run spec names."""
    if spec.reward_model is None:
        return None
    from trainer.graders.judge import RewardModelJudge  # noqa: PLC0415 - most graders need no model

    dtype = dtype_of(spec)
    folder = base_folder(rundir, spec.reward_model)
    return RewardModelJudge(folder, engine.device, dtype, date.fromisoformat(spec.date))
