"""Build the step source and evaluation of reinforcement learning."""

import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from trainer.contract import InputFile, RunSpec
from trainer.data.prompts import Prompts
from trainer.data.step_input import StepSource
from trainer.engine.evaluation import Evaluation
from trainer.graders.answer import Grader
from trainer.graders.build import make_grader
from trainer.methods.reference_model import make_reference
from trainer.model.precision import dtype_of
from trainer.model.tokenizer import base_folder
from trainer.process.sync_flags import FlagSync
from trainer.rollout.collector import RolloutCollector
from trainer.rollout.evaluation import RewardEvaluation
from trainer.rollout.rollouts import RolloutSource
from trainer.rollout.sampler import Sampler
from trainer.rundir import RunDir
from trainer.state import RankIdentity


def build_rollout_source(
    spec: RunSpec,
    rundir: RunDir,
    identity: RankIdentity,
    engine: Any,  # noqa: ANN401
    tokenizer: Any,  # noqa: ANN401
    agreement: FlagSync,
    config: dict[str, Any],
    base: Path,
) -> tuple[StepSource, Evaluation | None]:
    """Return the source of graded answers and the evaluation on the validation file."""
    settings = spec.reinforcement
    assert settings is not None
    kept = bool(settings.beta or settings.beta_end or settings.kl_target)

    sampler = Sampler(engine, tokenizer, settings, spec.seed, agreement.is_stop_requested_here)
    judge = _reward_model(spec, rundir, engine)
    folder = rundir.root / "grader" / f"rank-{identity.rank:05d}"
    grader = make_grader(settings.grader, folder, judge)
    reference = make_reference(engine, base, spec, config) if kept else None

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
            stop_here=agreement.is_stop_requested_here,
            now=time.monotonic,
        )

    asked = collector(spec.training_file, lambda: agreement.sync_flags().is_leaving)
    feed = RolloutSource(asked, settings, identity)
    if spec.validation_file is None:
        return feed, None
    validation = collector(spec.validation_file, lambda: agreement.sync_flags().is_leaving)
    return feed, RewardEvaluation(validation, identity)


def _reward_model(spec: RunSpec, rundir: RunDir, engine: Any) -> Grader | None:  # noqa: ANN401
    """Return the reward model that the run spec names."""
    if spec.reward_model is None:
        return None
    from trainer.graders.judge import RewardModelJudge  # noqa: PLC0415 - most graders need no model

    dtype = dtype_of(spec)
    folder = base_folder(rundir, spec.reward_model)
    return RewardModelJudge(folder, engine.device, dtype, date.fromisoformat(spec.date))
