"""What POST /v1/fine_tuning/jobs accepts: OpenAI's members, and ours beside them. Strict."""

from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from service.api.method_requests import HyperparametersRequest, MethodRequest, Strict
from service.domain.errors import InvalidRequest
from service.domain.method import Method
from service.domain.recipe import MAX_KEPT, Hyperparameters, Training
from trainer.contract import CHECKPOINTS_KEPT, Lora

_CODES = {"missing": "missing_required_parameter", "extra_forbidden": "unknown_parameter"}
_AUTO = "literal['auto']"  # how pydantic names the two sides of "auto or a number"
_NUMBERS = ("constrained-int", "constrained-float")


def parse(body: bytes) -> "JobRequest":
    """The request, or InvalidRequest with the first member that is wrong."""
    try:
        return JobRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False)) from None


def _refusal(faults: list[ErrorDetails]) -> InvalidRequest:
    fault = next(f for f in faults if f["loc"][-1:] != (_AUTO,))  # the number's is beside it
    path, message = fault["loc"], fault["msg"]
    if path[-1:] and path[-1] in _NUMBERS:
        path, message = path[:-1], f"{message}, or 'auto'"
    where = ".".join(map(str, path))
    return InvalidRequest(
        f"{where}: {message}" if where else message,
        code=_CODES.get(fault["type"], "invalid_value"),
        param=where or None,
    )


class LoraRequest(Strict):
    """Low-rank adapters instead of all parameters."""

    type: Literal["lora"]
    r: int = Field(default=16, ge=1, le=512)
    alpha: int | None = Field(default=None, ge=1, le=4096)  # None: twice r
    dropout: float = Field(default=0.0, ge=0, lt=1)


class TrainingRequest(Strict):
    """Ours: how the training is done; what is left out the planner chooses."""

    adapter: LoraRequest | None = None
    max_seq_len: int | None = Field(default=None, ge=16, le=1_048_576)
    precision: Literal["bf16", "fp32"] = "bf16"
    gradient_checkpointing: bool = True
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    micro_batch: int | None = Field(default=None, ge=1, le=1024)
    learning_rate: float | None = Field(default=None, gt=0, lt=1)
    checkpoint_seconds: float | None = Field(default=None, ge=1, le=86_400)
    eval_steps: int | None = Field(default=None, ge=0)
    keep_checkpoints: int = Field(default=CHECKPOINTS_KEPT, ge=1, le=MAX_KEPT)
    milestone_every_steps: int = Field(default=0, ge=0)
    packing: bool = False


class ElasticRequest(Strict):
    """May train on fewer nodes for a while; the sums change then, the order of samples never."""

    min_nodes: int = Field(ge=1, le=100)


class InfrastructureRequest(Strict):
    """Ours: what to run on."""

    nodes: int | None = Field(default=None, ge=1, le=100)
    elastic: ElasticRequest | None = None  # None: the world size is kept


class JobRequest(Strict):
    """The whole body."""

    model: str = Field(min_length=1, max_length=256)
    training_file: str
    validation_file: str | None = None
    suffix: str | None = Field(default=None, min_length=1, max_length=64)
    seed: int | None = Field(default=None, ge=0, le=2_147_483_647)
    metadata: (
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None
    ) = Field(default=None, max_length=16)
    integrations: list[object] | None = None
    hyperparameters: HyperparametersRequest | None = None
    method: MethodRequest | None = None
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
        return Hyperparameters(**chosen.model_dump(exclude={"beta"}))

    def asked_training(self) -> Training:
        """The method and our own knobs as the domain has them."""
        asked = self.training
        lora = None
        if asked.adapter:
            alpha = asked.adapter.alpha or 2 * asked.adapter.r
            lora = Lora(rank=asked.adapter.r, alpha=alpha, dropout=asked.adapter.dropout)
        dpo = self.method.asked_dpo() if self.method else None
        ours = asked.model_dump(exclude={"adapter"})
        return Training(method=self.asked_method(), dpo=dpo, lora=lora, **ours)
