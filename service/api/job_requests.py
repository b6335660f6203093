"""What POST /v1/fine_tuning/jobs accepts: OpenAI's members, and ours beside them. Strict."""

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from service.api.hyperparameters import HyperparametersRequest, Strict
from service.api.method_requests import MethodRequest
from service.api.order_requests import CurriculumRequest, MixRequest
from service.api.terms_requests import TermsRequest, after
from service.domain.errors import InvalidRequest
from service.domain.extras import NO_EXTRAS, Extras
from service.domain.method import Method
from service.domain.recipe import MAX_KEPT, Hyperparameters, Training
from service.domain.savings import Savings
from service.domain.terms import NO_TERMS, Terms
from trainer.contract import CHECKPOINTS_KEPT, Lora

_OPENAIS_THREE = set(Hyperparameters.__dataclass_fields__)
_BESIDE = {*Extras.__dataclass_fields__, "learning_rate_scaling"}
_BESIDE |= {"tensor_parallel", "sequence_parallel"}


class LoraRequest(Strict):
    """Low-rank adapters instead of all parameters; with qlora over a base in 4 bits."""

    type: Literal["lora", "qlora"]
    r: int = Field(default=16, ge=1, le=512)
    alpha: int | None = Field(default=None, ge=1, le=4096)  # None: twice r
    dropout: float = Field(default=0.0, ge=0, lt=1)

    def resolved(self) -> Lora:
        """With every number."""
        return Lora(
            rank=self.r,
            alpha=self.alpha or 2 * self.r,
            dropout=self.dropout,
            quantized=self.type == "qlora",
        )


class ScalingRequest(Strict):
    """A learning rate that grows with the batch, from the one that it was found with."""

    rule: Literal["linear", "square_root"]
    base_batch: int = Field(ge=1, le=1024)


class TrainingRequest(Strict):
    """Ours: how the training is done; what is left out the planner chooses."""

    adapter: LoraRequest | None = None
    max_seq_len: int | None = Field(default=None, ge=16, le=1_048_576)
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    gradient_checkpointing: bool = True
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    micro_batch: int | None = Field(default=None, ge=1, le=1024)
    learning_rate: float | None = Field(default=None, gt=0, lt=1)
    checkpoint_seconds: float | None = Field(default=None, ge=1, le=86_400)
    eval_steps: int | None = Field(default=None, ge=0)
    keep_checkpoints: int = Field(default=CHECKPOINTS_KEPT, ge=1, le=MAX_KEPT)
    milestone_every_steps: int = Field(default=0, ge=0)
    packing: bool = False
    mix: MixRequest | None = None
    curriculum: CurriculumRequest | None = None
    train_last_n_layers: int | None = Field(default=None, ge=1)
    train_embeddings: bool = True
    loss_chunk: int = Field(default=0, ge=0)
    offload: Literal["", "optimizer", "parameters"] = ""
    ema_decay: float = Field(default=0.0, ge=0, lt=1)
    on_spike: Literal["", "warn", "stop"] = ""
    compiled: bool = False
    fused_kernels: bool = False
    zero_plus_plus: tuple[Literal["hpz", "qwz", "qgz"], ...] = Field(default=(), strict=False)
    rollout_offload: bool = False
    verify: bool = True
    learning_rate_scaling: ScalingRequest | None = None
    tensor_parallel: int = 1
    sequence_parallel: int = 1

    @field_validator("tensor_parallel", "sequence_parallel")
    @classmethod
    def whole_layers(cls, value: int) -> int:
        """Refuse what the trainer cannot save exactly."""
        if value != 1:
            raise PydanticCustomError(
                "unsupported",
                "neither layers nor sequences are split over GPUs: leave it out, and take "
                "training.zero_stage 3 for a model that is too large for one",
            )
        return value

    def extras(self) -> Extras | None:
        """What is asked for beside the training itself; None: nothing."""
        scaling = self.learning_rate_scaling
        asked = Extras(
            on_spike=self.on_spike,
            compiled=self.compiled,
            fused_kernels=self.fused_kernels,
            zero_plus_plus="+".join(self.zero_plus_plus),
            rollout_offload=self.rollout_offload,
            scaling=scaling.rule if scaling else "",
            base_batch=scaling.base_batch if scaling else 0,
        )
        return None if asked == NO_EXTRAS else asked


class ElasticRequest(Strict):
    """May train on fewer nodes for a while; the sums change then, the order of samples never."""

    min_nodes: int = Field(ge=1, le=100)


class InfrastructureRequest(TermsRequest):
    """Ours: what to run on, for how much money, until when and where."""

    nodes: int | None = Field(default=None, ge=1, le=100)
    elastic: ElasticRequest | None = None  # None: the world size is kept

    def terms(self) -> Terms:
        """As the domain has them."""
        return after(NO_TERMS, self)


class JobRequest(Strict):
    """The whole body."""

    model: str = Field(
        min_length=1, max_length=512, description="A base model, or what a job made: ft:..."
    )
    training_file: str = Field(
        min_length=1, description="Id of an uploaded file of rows to train on."
    )
    validation_file: str | None = Field(default=None, min_length=1)
    suffix: str | None = Field(default=None, min_length=1, max_length=64)
    seed: int | None = Field(default=None, ge=0, le=2_147_483_647)
    metadata: (
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None
    ) = Field(default=None, max_length=16)
    integrations: list[object] | None = None
    hyperparameters: HyperparametersRequest | None = None
    method: MethodRequest | None = None
    plan: str | None = Field(
        default=None,
        max_length=64,
        description="Id of a plan of the same request: the job starts as planned.",
    )
    infrastructure: InfrastructureRequest = InfrastructureRequest()
    training: TrainingRequest = TrainingRequest()

    @field_validator("integrations")
    @classmethod
    def none_yet(cls, value: list[object] | None) -> list[object] | None:
        """Refuse what would silently not happen."""
        if value:
            raise PydanticCustomError("unsupported", "integrations are not supported: leave it out")
        return value

    def asked_method(self) -> Method:
        """Supervised unless told."""
        return self.method.type if self.method else "supervised"

    def asked_hyperparameters(self) -> Hyperparameters:
        """From ``method`` or from the deprecated place, but not from both."""
        new = self.method.hyperparameters if self.method else None
        if new is not None and self.hyperparameters is not None:
            raise InvalidRequest(
                f"Give hyperparameters once: in method.{self.asked_method()}.hyperparameters.",
                param="hyperparameters",
            )
        chosen = new or self.hyperparameters or HyperparametersRequest()
        return Hyperparameters(**chosen.model_dump(include=_OPENAIS_THREE))

    def asked_training(self) -> Training:
        """The method and our own knobs as the domain has them."""
        return self._training

    @cached_property
    def _training(self) -> Training:
        asked, method = self.training, self.method
        if method:
            method.refuse_others()
        lora = asked.adapter.resolved() if asked.adapter else None
        dpo = method.asked_dpo() if method else None
        reinforcement = method.asked_reinforcement() if method else None
        saved = {name: getattr(asked, name) for name in Savings.__dataclass_fields__}
        apart = {"adapter", "eval_steps", "mix", "curriculum", *saved, *_BESIDE}
        ours = asked.model_dump(exclude=apart)
        return Training(
            method=self.asked_method(),
            dpo=dpo,
            reinforcement=reinforcement,
            ranked=method.asked_ranked() if method else None,
            mix=asked.mix.resolved() if asked.mix else None,
            curriculum=asked.curriculum.resolved() if asked.curriculum else None,
            lora=lora,
            savings=Savings(**saved),
            extras=asked.extras(),
            eval_steps=self._eval_steps(),
            **ours,
        )

    def _eval_steps(self) -> int | None:
        """From OpenAI's place, which only reinforcement has, or from ours."""
        learnt = self.method.reinforcement if self.method else None
        within, own = learnt.eval_steps if learnt else None, self.training.eval_steps
        if within is not None and own is not None:
            raise InvalidRequest(
                "Give the steps between evaluations once: in training.eval_steps, or in "
                "method.reinforcement.hyperparameters.eval_interval.",
                param="training.eval_steps",
            )
        return own if within is None else within
