"""The member ``method`` of a job's request: how to train, as OpenAI's clients say it. Strict."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.domain.errors import InvalidRequest
from service.domain.method import METHODS, Method
from service.domain.recipe import DEFAULT_BETA, MAX_BETA
from trainer.contract import Dpo

Auto = Literal["auto"]
Beta = Auto | Annotated[float, Field(gt=0, le=MAX_BETA)] | None


class Strict(BaseModel):
    """No guessing: unknown members and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class HyperparametersRequest(Strict):
    """OpenAI's three, which every method has."""

    batch_size: Auto | Annotated[int, Field(ge=1, le=1024)] = "auto"
    learning_rate_multiplier: Auto | Annotated[float, Field(gt=0, le=10_000)] = "auto"
    n_epochs: Auto | Annotated[int, Field(ge=1, le=50)] = "auto"


class DpoHyperparametersRequest(HyperparametersRequest):
    """And OpenAI's fourth, which DPO has."""

    beta: Beta = None


class SupervisedRequest(Strict):
    """Options of the supervised method."""

    hyperparameters: HyperparametersRequest | None = None


class DpoRequest(Strict):
    """Options of direct preference optimization; loss and label_smoothing are ours."""

    hyperparameters: DpoHyperparametersRequest | None = None
    beta: Beta = None  # where an example of Azure's documents has it
    loss: Literal["sigmoid", "ipo"] = "sigmoid"
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)

    def resolved(self) -> Dpo:
        """With every number."""
        within = self.hyperparameters.beta if self.hyperparameters else None
        if within is not None and self.beta is not None:
            raise InvalidRequest(
                "Give beta once: in method.dpo.hyperparameters.", param="method.dpo.beta"
            )
        asked = within or self.beta or "auto"
        beta = DEFAULT_BETA if asked == "auto" else asked
        return Dpo(beta=beta, loss=self.loss, label_smoothing=self.label_smoothing)


class RewardRequest(Strict):
    """Options of reward models, a method of ours."""

    hyperparameters: HyperparametersRequest | None = None


class MethodRequest(Strict):
    """How to train: its type, and options of that type only."""

    type: Method
    supervised: SupervisedRequest | None = None
    dpo: DpoRequest | None = None
    reward: RewardRequest | None = None

    @property
    def hyperparameters(self) -> HyperparametersRequest | None:
        """Those of the type."""
        options: SupervisedRequest | DpoRequest | RewardRequest | None = getattr(self, self.type)
        return options.hyperparameters if options else None

    def asked_dpo(self) -> Dpo | None:
        """None for the other methods; raises InvalidRequest for options of another type."""
        for other in METHODS:
            if other != self.type and getattr(self, other) is not None:
                raise InvalidRequest(
                    f"method.{other} has options of another method than method.type, which is "
                    f"{self.type!r}. Leave it out, or change the type.",
                    param=f"method.{other}",
                )
        return (self.dpo or DpoRequest()).resolved() if self.type == "dpo" else None
