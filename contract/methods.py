"""The member ``method``: how to train, as OpenAI's clients say it."""

from typing import Annotated, Literal

from pydantic import Field

from contract.choices import HIGHEST_MARGIN, MAX_BETA, Method
from contract.reinforcement import ReinforcementRequest
from contract.strict import Auto, HyperparametersRequest, Strict

Beta = Auto | Annotated[float, Field(gt=0, le=MAX_BETA)] | None


class DpoHyperparametersRequest(HyperparametersRequest):
    """And OpenAI's fourth, which DPO has."""

    beta: Beta = None
    """KL penalty weight; default 0.1."""


class SupervisedRequest(Strict):
    """Options of the supervised method."""

    hyperparameters: HyperparametersRequest | None = None
    """Batch size, learning rate and epochs."""


class DpoRequest(Strict):
    """Options of direct preference optimization."""

    hyperparameters: DpoHyperparametersRequest | None = None
    """Batch size, learning rate, epochs and beta."""
    beta: Beta = None  # where an example of Azure's documents has it
    """KL penalty weight, where Azure's documents have it; give it once."""
    loss: Literal["sigmoid", "ipo"] = "sigmoid"
    """Loss of the margin between the two answers."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of pairs that are assumed to be the wrong way round."""


class RewardRequest(Strict):
    """Options of reward models; both margins are of loss `ranked_margin`."""

    hyperparameters: HyperparametersRequest | None = None
    """Batch size, learning rate and epochs."""
    loss: Literal["bradley_terry", "ranked_margin"] = "bradley_terry"
    """`bradley_terry` for pairs, `ranked_margin` for rankings."""
    margin_start: float | None = Field(default=None, ge=0, le=HIGHEST_MARGIN)
    """Margin at the first step."""
    margin_end: float | None = Field(default=None, ge=0, le=HIGHEST_MARGIN)
    """Margin at the last step."""


class ClassificationRequest(Strict):
    """Options of classification."""

    hyperparameters: HyperparametersRequest | None = None
    """Batch size, learning rate and epochs."""


Options = (
    SupervisedRequest | DpoRequest | RewardRequest | ReinforcementRequest | ClassificationRequest
)


class MethodRequest(Strict):
    """How to train: a type, and options of that type only."""

    type: Method
    """Training method."""
    supervised: SupervisedRequest | None = None
    """Options of the supervised method."""
    dpo: DpoRequest | None = None
    """Options of direct preference optimization."""
    reward: RewardRequest | None = None
    """Options of reward models."""
    reinforcement: ReinforcementRequest | None = None
    """Options of learning from graded answers."""
    classification: ClassificationRequest | None = None
    """Options of classification."""

    @property
    def hyperparameters(self) -> HyperparametersRequest | None:
        """Those of the type."""
        options: Options | None = getattr(self, self.type)
        return options.hyperparameters if options else None
