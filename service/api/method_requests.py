"""The member ``method`` of a job's request: how to train, as OpenAI's clients say it. Strict."""

from typing import Annotated, Literal

from pydantic import Field

from service.api.hyperparameters import Auto, HyperparametersRequest, Strict
from service.api.reinforcement_requests import ReinforcementRequest
from service.domain.errors import InvalidRequest
from service.domain.method import METHODS, Method
from service.domain.ranking import HIGHEST_MARGIN
from service.domain.recipe import DEFAULT_BETA, MAX_BETA
from trainer.contract import Dpo, Ranked, Reinforcement

Beta = Auto | Annotated[float, Field(gt=0, le=MAX_BETA)] | None


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
    """Options of reward models, a method of ours; both margins are of loss ranked_margin."""

    hyperparameters: HyperparametersRequest | None = None
    loss: Literal["bradley_terry", "ranked_margin"] = "bradley_terry"
    margin_start: float | None = Field(default=None, ge=0, le=HIGHEST_MARGIN)
    margin_end: float | None = Field(default=None, ge=0, le=HIGHEST_MARGIN)

    def resolved(self) -> Ranked | None:
        """With every number; None for pairs."""
        margins = {"margin_start": self.margin_start, "margin_end": self.margin_end}
        told = {name: value for name, value in margins.items() if value is not None}
        if self.loss == "ranked_margin":
            return Ranked(**told)
        for name in told:
            raise InvalidRequest(
                f"method.reward.{name} is of loss ranked_margin, and the loss is {self.loss}. "
                "Leave it out, or change the loss.",
                param=f"method.reward.{name}",
            )
        return None


class ClassificationRequest(Strict):
    """Options of classification, a method of ours."""

    hyperparameters: HyperparametersRequest | None = None


_Options = (
    SupervisedRequest | DpoRequest | RewardRequest | ReinforcementRequest | ClassificationRequest
)


class MethodRequest(Strict):
    """How to train: its type, and options of that type only."""

    type: Method
    supervised: SupervisedRequest | None = None
    dpo: DpoRequest | None = None
    reward: RewardRequest | None = None
    reinforcement: ReinforcementRequest | None = None
    classification: ClassificationRequest | None = None

    @property
    def hyperparameters(self) -> HyperparametersRequest | None:
        """Those of the type."""
        options: _Options | None = getattr(self, self.type)
        return options.hyperparameters if options else None

    def asked_dpo(self) -> Dpo | None:
        """None for the other methods."""
        return (self.dpo or DpoRequest()).resolved() if self.type == "dpo" else None

    def asked_ranked(self) -> Ranked | None:
        """None for pairs, and for the other methods."""
        return self.reward.resolved() if self.type == "reward" and self.reward else None

    def asked_reinforcement(self) -> Reinforcement | None:
        """None for the other methods; raises InvalidRequest where it is or lacks a member."""
        if self.type != "reinforcement":
            return None
        if self.reinforcement is None:
            raise InvalidRequest(
                "method.reinforcement.grader: missing. Answers are learnt from by their grades.",
                code="missing_required_parameter",
                param="method.reinforcement.grader",
            )
        return self.reinforcement.resolved()

    def refuse_others(self) -> None:
        """Raise InvalidRequest for options of another type."""
        for other in METHODS:
            if other != self.type and getattr(self, other) is not None:
                raise InvalidRequest(
                    f"method.{other} has options of another method than method.type, which is "
                    f"{self.type!r}. Leave it out, or change the type.",
                    param=f"method.{other}",
                )
