"""From what a user asks for to the numbers that the trainer runs on, whatever the machines.

The global batch and the order of rows belong to the user: the order is one permutation per
epoch, indexed by the count of consumed rows, so no number here but the batch's rounding
depends on the world size.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from contract.choices import MAX_BATCH, MAX_BETA, MAX_EPOCHS, MAX_KEPT, Method
from service.domain import abilities, ordering, ranking
from service.domain import extras as beside
from service.domain import reinforcement as rl
from service.domain.architecture import Architecture
from service.domain.errors import InvalidRequest
from service.domain.extras import NO_EXTRAS, Extras
from service.domain.method import METHODS
from service.domain.row import Format
from service.domain.savings import NONE, Savings
from trainer.contract import (
    CHECKPOINTS_KEPT,
    MILESTONES_KEPT,
    Curriculum,
    Dpo,
    Lora,
    Mix,
    Ranked,
    Reinforcement,
)

Auto = Literal["auto"]
Precision = Literal["bf16", "fp16", "fp32"]

DEFAULT_BETA = 0.1  # as TRL's and OpenAI's documents have it
WARMUP_RATIO = 0.03
MIN_LR_RATIO = 0.1
WEIGHT_DECAY = 0.01
MAX_GRAD_NORM = 1.0
DEFAULT_MAX_SEQ_LEN = 2048
MIN_CHUNK = 16  # positions; less is slow and saves nothing
EVALUATIONS = 10  # validation losses over a job when eval_steps is not given

_PRECISIONS = ("bf16", "fp16", "fp32")
_LOSSES = ("sigmoid", "ipo")
_AS_ASKED: tuple[str, ...] = (
    *("precision", "gradient_checkpointing", "lora", "checkpoint_seconds", "keep_checkpoints"),
    *("milestone_every_steps", "method", "dpo", "packing", "ranked", "mix", "curriculum"),
    *("savings", "ema_decay", "extras", "split_answers"),
)
_LARGE_FILE = 50_000  # rows
_DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """OpenAI's three."""

    batch_size: int | Auto = "auto"
    learning_rate_multiplier: float | Auto = "auto"
    n_epochs: int | Auto = "auto"


@dataclass(frozen=True, kw_only=True)
class Training:
    """The method, and our own knobs, the API's ``training`` member; None means that the planner
    chooses.
    """

    method: Method = "supervised"
    dpo: Dpo | None = None  # with that method, and no other
    reinforcement: Reinforcement | None = None  # the same; its answers' length may be left to us
    lora: Lora | None = None
    max_seq_len: int | None = None
    precision: Precision = "bf16"
    gradient_checkpointing: bool = True
    zero_stage: int | None = None
    micro_batch: int | None = None
    learning_rate: float | None = None  # before the multiplier, instead of our own
    checkpoint_seconds: float | None = None
    eval_steps: int | None = None
    keep_checkpoints: int = CHECKPOINTS_KEPT  # the newest, beside the best and milestones
    milestone_every_steps: int = 0  # 0: none
    packing: bool = False  # sequences side by side, not padded
    ranked: Ranked | None = None  # of a reward model; None: it learns from pairs
    answers: int = 2  # with ranked: the most that a row of the files has
    mix: Mix | None = None
    curriculum: Curriculum | None = None
    savings: Savings = NONE
    ema_decay: float = 0.0  # of an average of the weights, which is what is exported; 0: none
    extras: Extras | None = None
    split_answers: bool = False  # each trained answer is an example: what the rows' check found
    verify: bool = True  # the exported model, before the job succeeds

    def __post_init__(self) -> None:
        assert (self.method == "dpo") == (self.dpo is not None), "they go together"
        learns = self.method == "reinforcement"
        assert learns == (self.reinforcement is not None), "and these"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything about the training that does not depend on how it is spread over machines."""

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
    precision: Precision
    gradient_checkpointing: bool
    lora: Lora | None
    checkpoint_seconds: float | None  # None: as often as pays (`service/domain/cadence.py`)
    eval_steps: int
    keep_checkpoints: int = CHECKPOINTS_KEPT  # plans of an earlier release do not say
    milestone_every_steps: int = 0
    method: Method = "supervised"
    dpo: Dpo | None = None
    reinforcement: Reinforcement | None = None
    packing: bool = False
    ranked: Ranked | None = None
    answers: int = 2
    mix: Mix | None = None
    curriculum: Curriculum | None = None
    savings: Savings = NONE
    ema_decay: float = 0.0
    extras: Extras | None = None
    split_answers: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def format(self) -> Format:
        """Of the files that it is trained and validated on."""
        return METHODS[self.method].learns_from

    @property
    def sequences(self) -> int:
        """The most that a sample becomes."""
        if self.reinforcement:
            return self.reinforcement.answers
        return self.answers if self.ranked else METHODS[self.method].sequences

    @property
    def context(self) -> int:
        """Tokens that a row may have: an answer that is yet to be written takes its part."""
        asked = self.reinforcement
        return rl.room(asked, self.max_seq_len) if asked else self.max_seq_len


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
    check(hyper, training, examples=examples, arch=arch)
    epochs = _epochs(hyper, examples)
    batch = _batch_size(hyper, examples)
    unit = world * (training.micro_batch or 1)
    global_batch, warnings = _share_out(batch, unit, asked=hyper.batch_size != "auto")
    total_steps = math.ceil(examples * epochs / global_batch)
    _check_milestones(training, total_steps)
    chosen = hyper.learning_rate_multiplier
    multiplier = 1.0 if chosen == "auto" else float(chosen)
    length, asked = _max_seq_len(training, arch), training.reinforcement
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
        reinforcement=rl.settled(asked, length) if asked else None,
        answers=training.answers if training.ranked else 2,
        warnings=warnings,
        **{name: getattr(training, name) for name in _AS_ASKED},
    )


def check(hyper: Hyperparameters, training: Training, *, examples: int, arch: Architecture) -> None:
    """Raise InvalidRequest for the first number that can never work."""
    if examples < 1:
        raise InvalidRequest("The training file holds no examples.", param="training_file")
    saved = training.savings
    rules = [
        *_hyper_rules(hyper),
        *abilities.rules(
            arch, training.method, training.lora, saved.loss_chunk, training.reinforcement
        ),
        *_training_rules(training, arch),
        *_packing_rules(training, arch),
        *_lora_rules(training.lora),
        *_savings_rules(training, arch),
        *beside.rules(training.extras, training.method, training.zero_stage),
        *_dpo_rules(training.dpo),
        *ranking.rules(training.ranked),
        *ordering.rules(training.method, training.mix, training.curriculum),
        *rl.rules(training.reinforcement, _max_seq_len(training, arch)),
    ]
    for param, value, fine, rule in rules:
        if not fine:
            raise InvalidRequest(f"{param} is {value}, but it must be {rule}.", param=param)


_Rule = tuple[str, object, bool, str]  # parameter, its value, whether it is fine, what would be


def _hyper_rules(hyper: Hyperparameters) -> Iterator[_Rule]:
    batch, rate, epochs = hyper.batch_size, hyper.learning_rate_multiplier, hyper.n_epochs
    at = "hyperparameters."
    yield f"{at}batch_size", batch, batch == "auto" or 1 <= batch <= MAX_BATCH, f"1 to {MAX_BATCH}"
    yield (
        f"{at}learning_rate_multiplier",
        rate,
        rate == "auto" or 0 < rate <= 10_000,
        "in (0, 10000]",
    )
    yield f"{at}n_epochs", epochs, epochs == "auto" or 1 <= epochs <= MAX_EPOCHS, "1 to 50"


def _training_rules(training: Training, arch: Architecture) -> Iterator[_Rule]:
    stages = zero_stages(training)
    length, stage, micro = training.max_seq_len, training.zero_stage, training.micro_batch
    rate, save, evaluate = training.learning_rate, training.checkpoint_seconds, training.eval_steps
    longest = arch.max_positions
    yield _rule(
        "precision", training.precision, training.precision in _PRECISIONS, "bf16, fp16 or fp32"
    )
    fits = length is None or 2 <= length <= longest
    yield _rule("max_seq_len", length, fits, f"2 to {longest}, the longest the base model takes")
    yield _rule("zero_stage", stage, stage is None or stage in stages, _stages_rule(training))
    yield _rule("micro_batch", micro, micro is None or 1 <= micro <= MAX_BATCH, f"1 to {MAX_BATCH}")
    yield _rule("learning_rate", rate, rate is None or 0 < rate < 1, "between 0 and 1")
    yield _rule("checkpoint_seconds", save, save is None or 1 <= save <= _DAY, f"1 to {_DAY}")
    yield _rule("eval_steps", evaluate, evaluate is None or evaluate >= 0, "0 or more")
    keep, every = training.keep_checkpoints, training.milestone_every_steps
    yield _rule("keep_checkpoints", keep, 1 <= keep <= MAX_KEPT, f"1 to {MAX_KEPT}")
    yield _rule("milestone_every_steps", every, every >= 0, "0 or more")
    decay = training.ema_decay
    yield _rule("ema_decay", decay, 0 <= decay < 1, "at least 0 and below 1")


def zero_stages(training: Training) -> range:
    """Those that go with everything else."""
    extras, offload = training.extras or NO_EXTRAS, training.savings.offload
    lowest = 1 if training.precision != "fp32" or offload or extras.rollout_offload else 0
    quantized = training.lora is not None and training.lora.quantized
    highest = 2 if quantized or extras.rollout_offload else 3
    return range(3 if offload == "parameters" else lowest, highest + 1)


def _stages_rule(training: Training) -> str:
    stages = zero_stages(training)
    if not stages:
        return "left to us; but nothing goes with all that is asked for together"
    rule = f"{stages[0]} to {stages[-1]} with precision {training.precision}"
    if training.savings.offload:
        rule += f" and offload {training.savings.offload}"
    if training.extras and training.extras.rollout_offload:
        return rule + " and rollout_offload"
    return rule + (" and adapter qlora" if 3 not in stages else "")


def _savings_rules(training: Training, arch: Architecture) -> Iterator[_Rule]:
    saved = training.savings
    last, chunk, full = saved.train_last_n_layers, saved.loss_chunk, training.lora is None
    fits = last is None or 1 <= last <= arch.layers
    yield _rule("train_last_n_layers", last, fits, f"1 to {arch.layers}, the base model's layers")
    why = "left out with an adapter, which freezes the whole base model"
    yield _rule("train_last_n_layers", last, last is None or full, why)
    yield _rule("train_embeddings", "false", saved.train_embeddings or full, why)
    yield _rule("loss_chunk", chunk, chunk == 0 or chunk >= MIN_CHUNK, f"0, or {MIN_CHUNK} or more")
    fits = saved.offload != "parameters" or len(zero_stages(training)) > 0
    why = "optimizer, or left out: the weights wait on the host under ZeRO stage 3 alone"
    yield _rule("offload", saved.offload, fits, why)
    fits = chunk == 0 or training.method == "supervised"
    yield _rule("loss_chunk", chunk, fits, "left out: only the supervised method has it")


def _packing_rules(training: Training, arch: Architecture) -> Iterator[_Rule]:
    if not training.packing:
        return
    why = f"left out with method {training.method}, which reads a score at the end of each row"
    yield _rule("packing", "true", training.method not in ("reward", "classification"), why)
    why = "left out with method reinforcement, whose answers have no length yet"
    yield _rule("packing", "true", training.method != "reinforcement", why)
    why = "left out with this base model: its attention might mix sequences side by side"
    yield _rule("packing", "true", arch.packs, why)


def _check_milestones(training: Training, total_steps: int) -> None:
    """All of them are kept for as long as the job is, and HEAD names each."""
    every = training.milestone_every_steps
    if every and total_steps // every > MILESTONES_KEPT:
        least = math.ceil(total_steps / MILESTONES_KEPT)
        raise InvalidRequest(
            f"training.milestone_every_steps is {every}, which makes more than {MILESTONES_KEPT} "
            f"milestones in {total_steps} steps. Make it {least} or more.",
            param="training.milestone_every_steps",
        )


def _lora_rules(lora: Lora | None) -> Iterator[_Rule]:
    if lora is None:
        return
    yield _rule("adapter.r", lora.rank, 1 <= lora.rank <= 1024, "1 to 1024")
    yield _rule("adapter.alpha", lora.alpha, 1 <= lora.alpha <= 8192, "1 to 8192")
    yield _rule("adapter.dropout", lora.dropout, 0 <= lora.dropout < 1, "at least 0 and below 1")


def _dpo_rules(dpo: Dpo | None) -> Iterator[_Rule]:
    if dpo is None:
        return
    at, beta, smoothing = "method.dpo.", dpo.beta, dpo.label_smoothing
    yield f"{at}hyperparameters.beta", beta, 0 < beta <= MAX_BETA, f"in (0, {MAX_BETA:g}]"
    yield f"{at}loss", dpo.loss, dpo.loss in _LOSSES, " or ".join(_LOSSES)
    fits = 0 <= smoothing < 0.5
    yield f"{at}label_smoothing", smoothing, fits, "at least 0 and below 0.5"
    fits = dpo.loss != "ipo" or smoothing == 0
    yield f"{at}label_smoothing", smoothing, fits, "left out with loss ipo, which has none"


def _rule(name: str, value: object, fine: bool, rule: str) -> _Rule:
    return f"training.{name}", value, fine, rule


def _max_seq_len(training: Training, arch: Architecture) -> int:
    return training.max_seq_len or min(DEFAULT_MAX_SEQ_LEN, arch.max_positions)


def _epochs(hyper: Hyperparameters, examples: int) -> int:
    """Three passes; a large file needs fewer."""
    if hyper.n_epochs != "auto":
        return hyper.n_epochs
    return 3 if examples <= _LARGE_FILE else 1


def _batch_size(hyper: Hyperparameters, examples: int) -> int:
    """At least some sixty steps per epoch: the power of two below 1/64 of the rows, 1 to 64."""
    if hyper.batch_size != "auto":
        return hyper.batch_size
    return min(64, 1 << max((examples // 64).bit_length() - 1, 0))


def _share_out(batch: int, unit: int, *, asked: bool) -> tuple[int, tuple[str, ...]]:
    """Round the batch up to a multiple of ``unit``, the rows that one micro-step takes."""
    rounded = math.ceil(batch / unit) * unit
    if rounded == batch or not asked:
        return rounded, ()
    warning = (
        f"The batch size is {rounded}, not {batch}: one micro-step on all processes takes {unit} "
        f"rows, and a batch is a multiple of that. Ask for {rounded}, or for fewer nodes."
    )
    return rounded, (warning,)


def _peak_learning_rate(training: Training, multiplier: float, global_batch: int) -> float:
    usual, rate = METHODS[training.method], training.learning_rate
    if rate is None:
        rate = usual.lora_learning_rate if training.lora else usual.learning_rate
    return (training.extras or NO_EXTRAS).scaled(rate * multiplier, global_batch)


def _eval_steps(training: Training, total_steps: int) -> int:
    if training.eval_steps is not None:
        return training.eval_steps
    return max(total_steps // EVALUATIONS, 1)
