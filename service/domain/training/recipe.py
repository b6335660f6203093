"""Resolve a request to the numbers that the trainer runs on, whatever the machines.

The global batch and the order of rows belong to the user: the order is one permutation per epoch,
indexed by the count of consumed rows, so no number here but the batch's rounding depends on the
world size.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from contract.choices import Format
from contract.methods import METHODS, Method
from service.domain.errors import InvalidRequest
from service.domain.models.architecture import Architecture
from service.domain.training import reinforcement as rl
from service.domain.training.request_rules import RuleInputs, refuse_broken
from trainer.contract import LATER, MILESTONES_KEPT, TrainingOptions

Auto = Literal["auto"]

DEFAULT_BETA = 0.1  # as TRL's and OpenAI's documents have it
WARMUP_RATIO = 0.03
MIN_LR_RATIO = 0.1
WEIGHT_DECAY = 0.01
MAX_GRAD_NORM = 1.0
DEFAULT_MAX_SEQ_LEN = 2048
EVALUATIONS = 10  # validation losses over a job when eval_steps is not given

_LARGE_FILE = 50_000  # rows


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """OpenAI's three hyperparameters."""

    batch_size: int | Auto = "auto"
    learning_rate_multiplier: float | Auto = "auto"
    n_epochs: int | Auto = "auto"


@dataclass(frozen=True, kw_only=True)
class LearningRateScaling:
    """A learning rate that scales with the batch (Goyal et al., 2017; Krizhevsky, 2014)."""

    rule: Literal["linear", "square_root"]
    base_batch: int  # for which the learning rate was tuned

    def scaled(self, rate: float, global_batch: int) -> float:
        """Return the learning rate for this global batch."""
        times = global_batch / self.base_batch
        return rate * (times if self.rule == "linear" else times**0.5)


@dataclass(frozen=True, kw_only=True)
class Training(TrainingOptions):
    """The method and our own options, the API's ``training`` member; None: the planner chooses.

    ``reinforcement`` may leave the length of answers to the planner.
    """

    method: Method = "supervised"
    max_seq_len: int | None = None
    zero_stage: int | None = None
    micro_batch: int | None = None
    learning_rate: float | None = None  # before the multiplier, instead of our own
    learning_rate_scaling: LearningRateScaling | None = None
    checkpoint_seconds: float | None = None
    eval_steps: int | None = None
    answers: int = 2  # with ranked: the most that a row of the files has
    verify: bool = True  # the exported model, before the job succeeds

    def __post_init__(self) -> None:
        assert (self.method == "dpo") == (self.dpo is not None), "they go together"
        learns = self.method == "reinforcement"
        assert learns == (self.reinforcement is not None), "and these"


@dataclass(frozen=True, kw_only=True)
class Recipe(TrainingOptions):
    """All numbers of the training that do not depend on its layout on machines."""

    n_epochs: int
    batch_size: int  # as asked for, or as chosen for "auto"
    global_batch: int  # batch_size, rounded up to what the world can share out
    total_steps: int
    learning_rate_multiplier: float
    learning_rate: float
    warmup_steps: int
    min_lr_ratio: float
    weight_decay: float
    max_grad_norm: float
    max_seq_len: int
    checkpoint_seconds: float | None  # None: derived by `planning/checkpoint_interval.py`
    eval_steps: int
    method: Method = field(default="supervised", metadata=LATER)
    answers: int = field(default=2, metadata=LATER)
    warnings: tuple[str, ...] = ()

    @property
    def format(self) -> Format:
        """Return the format of its training and validation files."""
        return METHODS[self.method].rows[0]

    @property
    def sequences(self) -> int:
        """Return the maximum number of sequences of a sample."""
        if self.reinforcement:
            return self.reinforcement.answers
        return self.answers if self.ranked else METHODS[self.method].sequences

    @property
    def context(self) -> int:
        """Return the maximum tokens of a row; generated answers take their part."""
        reinforcement = self.reinforcement
        return (
            rl.max_prompt_tokens(reinforcement, self.max_seq_len)
            if reinforcement
            else self.max_seq_len
        )


def resolve(
    hyper: Hyperparameters,
    training: Training,
    *,
    examples: int,
    arch: Architecture,
    world: int = 1,
) -> Recipe:
    """Fill in every number, or raise InvalidRequest that names the parameter at fault.

    ``total_steps`` is examples x epochs / global batch, rounded up: the last step is a whole
    one and takes what it lacks from the next permutation.
    """
    check(training, examples=examples, arch=arch)
    epochs = _epochs(hyper, examples)
    batch = _batch_size(hyper, examples)
    unit = world * (training.micro_batch or 1)
    global_batch, warnings = _share_out(batch, unit, is_explicit=hyper.batch_size != "auto")
    total_steps = math.ceil(examples * epochs / global_batch)
    _check_milestones(training, total_steps)
    chosen = hyper.learning_rate_multiplier
    multiplier = 1.0 if chosen == "auto" else float(chosen)
    length, settings = _max_seq_len(training, arch), training.reinforcement
    return Recipe(
        n_epochs=epochs,
        batch_size=batch,
        global_batch=global_batch,
        total_steps=total_steps,
        learning_rate_multiplier=multiplier,
        learning_rate=_peak_learning_rate(training, multiplier, global_batch),
        warmup_steps=min(math.ceil(total_steps * WARMUP_RATIO), total_steps - 1),
        min_lr_ratio=MIN_LR_RATIO,
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=MAX_GRAD_NORM,
        max_seq_len=length,
        eval_steps=_eval_steps(training, total_steps),
        checkpoint_seconds=training.checkpoint_seconds,
        method=training.method,
        answers=training.answers if training.ranked else 2,
        warnings=warnings,
        **(training.options | {"reinforcement": settings and rl.with_defaults(settings, length)}),
    )


def check(training: Training, *, examples: int, arch: Architecture) -> None:
    """Raise InvalidRequest for the first number that can never work."""
    if examples < 1:
        raise InvalidRequest("The training file holds no examples.", param="training_file")
    length, learnt = _max_seq_len(training, arch), training.reinforcement
    facts = RuleInputs(
        t=training,
        a=arch,
        longest=length,
        answer_tokens=rl.with_defaults(learnt, length).max_answer_tokens if learnt else 0,
        stages=zero_stages(training),
        stages_rule=_stages_rule(training),
    )
    refuse_broken(facts)


def zero_stages(training: Training) -> range:
    """Return the ZeRO stages that are compatible with the other options."""
    offload, aside = training.offload, training.rollout_offload
    lowest = 1 if training.precision != "fp32" or offload or aside else 0
    highest = 2 if training.is_quantized or aside else 3
    return range(3 if offload == "parameters" else lowest, highest + 1)


def _stages_rule(training: Training) -> str:
    stages = zero_stages(training)
    if not stages:
        return "left out, but no stage works with these options together"
    rule = f"{stages[0]} to {stages[-1]} with precision {training.precision}"
    if training.offload:
        rule += f" and offload {training.offload}"
    if training.rollout_offload:
        return rule + " and rollout_offload"
    return rule + (" and adapter qlora" if 3 not in stages else "")


def _check_milestones(training: Training, total_steps: int) -> None:
    """Refuse more milestones than HEAD can name: all are kept as long as the job."""
    interval = training.milestone_every_steps
    if interval and total_steps // interval > MILESTONES_KEPT:
        least = math.ceil(total_steps / MILESTONES_KEPT)
        raise InvalidRequest(
            f"training.milestone_every_steps is {interval}, which makes more than "
            f"{MILESTONES_KEPT} milestones in {total_steps} steps. Make it {least} or more.",
            param="training.milestone_every_steps",
        )


def _max_seq_len(training: Training, arch: Architecture) -> int:
    return training.max_seq_len or min(DEFAULT_MAX_SEQ_LEN, arch.max_positions)


def _epochs(hyper: Hyperparameters, examples: int) -> int:
    """Return the epochs: three by default, one for a large file."""
    if hyper.n_epochs != "auto":
        return hyper.n_epochs
    return 3 if examples <= _LARGE_FILE else 1


def _batch_size(hyper: Hyperparameters, examples: int) -> int:
    """Return the power of two below 1/64 of the rows, 1 to 64: some sixty steps per epoch."""
    if hyper.batch_size != "auto":
        return hyper.batch_size
    return min(64, 1 << max((examples // 64).bit_length() - 1, 0))


def _share_out(batch: int, unit: int, *, is_explicit: bool) -> tuple[int, tuple[str, ...]]:
    """Round the batch up to a multiple of ``unit``, the rows that one micro-step takes."""
    rounded = math.ceil(batch / unit) * unit
    if rounded == batch or not is_explicit:
        return rounded, ()
    warning = (
        f"The batch size is {rounded}, not {batch}: one micro-step on all processes takes {unit} "
        f"rows, and a batch is a multiple of that. Ask for {rounded}, or for fewer nodes."
    )
    return rounded, (warning,)


def _peak_learning_rate(training: Training, multiplier: float, global_batch: int) -> float:
    default, rate = METHODS[training.method], training.learning_rate
    if rate is None:
        rate = default.lora_learning_rate if training.lora else default.learning_rate
    scaling = training.learning_rate_scaling
    return scaling.scaled(rate * multiplier, global_batch) if scaling else rate * multiplier


def _eval_steps(training: Training, total_steps: int) -> int:
    if training.eval_steps is not None:
        return training.eval_steps
    return max(total_steps // EVALUATIONS, 1)
