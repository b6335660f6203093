"""Training methods: the member ``method`` in OpenAI's form, and a descriptor of each method.

To add a method, add its name to `Method`, its options to `MethodRequest`, its descriptor to
`METHODS`, and its loss as `trainer/methods/NAME.py`. Everything else is derived from these.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from contract.choices import HIGHEST_MARGIN, MAX_BETA, Format
from contract.reinforcement import ReinforcementRequest
from contract.strict import Auto, HyperparametersRequest, OptionsRequest, Strict

Method = Literal["supervised", "dpo", "orpo", "reward", "reinforcement", "classification"]
Beta = Auto | Annotated[float, Field(gt=0, le=MAX_BETA)] | None


class DpoHyperparametersRequest(HyperparametersRequest):
    """OpenAI's hyperparameters for DPO, which add beta."""

    beta: Beta = None
    """KL penalty weight; default 0.1."""


class SupervisedRequest(OptionsRequest):
    """Options of the supervised method."""


class DpoRequest(OptionsRequest):
    """Options of direct preference optimization."""

    hyperparameters: DpoHyperparametersRequest | None = None
    """Batch size, learning rate, epochs and beta."""
    beta: Beta = None  # where an example of Azure's documents has it
    """KL penalty weight, where Azure's documents have it; give it once."""
    loss: Literal["sigmoid", "ipo"] = "sigmoid"
    """Loss of the margin between the two answers."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of pairs that are assumed to be the wrong way round."""


class OrpoHyperparametersRequest(HyperparametersRequest):
    """Hyperparameters for ORPO, which add the weight of the odds ratio."""

    beta: float = Field(default=0.1, gt=0, le=MAX_BETA)
    """Weight of the odds ratio (lambda in the paper)."""


class OrpoRequest(OptionsRequest):
    """Options of odds ratio preference optimization."""

    hyperparameters: OrpoHyperparametersRequest | None = None
    """Batch size, learning rate, epochs and beta."""


class RewardRequest(OptionsRequest):
    """Options of reward models; both margins are of loss `ranked_margin`."""

    loss: Literal["bradley_terry", "ranked_margin"] = "bradley_terry"
    """`bradley_terry` for pairs, `ranked_margin` for rankings."""
    margin_start: float | None = Field(default=None, ge=0, le=HIGHEST_MARGIN)
    """Margin at the first step."""
    margin_end: float | None = Field(default=None, ge=0, le=HIGHEST_MARGIN)
    """Margin at the last step."""


class ClassificationRequest(OptionsRequest):
    """Options of classification."""


class MethodRequest(Strict):
    """How to train: a type, and options of that type only."""

    type: Method
    """Training method."""
    supervised: SupervisedRequest | None = None
    """Options of the supervised method."""
    dpo: DpoRequest | None = None
    """Options of direct preference optimization."""
    orpo: OrpoRequest | None = None
    """Options of odds ratio preference optimization."""
    reward: RewardRequest | None = None
    """Options of reward models."""
    reinforcement: ReinforcementRequest | None = None
    """Options of learning from graded answers."""
    classification: ClassificationRequest | None = None
    """Options of classification."""

    @property
    def hyperparameters(self) -> HyperparametersRequest | None:
        """Hyperparameters of the selected method, if given."""
        options: OptionsRequest | None = getattr(self, self.type)
        return options.hyperparameters if options else None


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """Properties of a method, for everything but the trainer, which has its loss."""

    label: str  # in forms and completions
    options: type[OptionsRequest]
    rows: tuple[Format, ...]  # formats that it trains on, the usual one first
    learning_rate: float  # peak learning rate before the multiplier
    lora_learning_rate: float  # for adapters, which start at zero: ten to twenty times as much
    reference: bool = False  # a frozen reference model always scores every sequence too
    head: str = ""  # description of a model whose head returns scores instead of logits

    @property
    def sequences(self) -> int:
        """Number of sequences of a sample."""
        return self.rows[0].sequences


# In the order of forms. Of methods with the same row format, the first is the default.
METHODS: Final[dict[Method, Descriptor]] = {
    "supervised": Descriptor(
        label="Supervised: learn the answers of chats",
        options=SupervisedRequest,
        rows=(Format.CHAT,),
        learning_rate=1e-5,
        lora_learning_rate=2e-4,
    ),
    # Preferences move a model that can answer already. TRL's DPOConfig has 1e-6; Zephyr was made
    # with 5e-7 (Tunstall et al., 2023).
    "dpo": Descriptor(
        label="DPO: learn from preferred answers",
        options=DpoRequest,
        rows=(Format.PREFERENCE,),
        learning_rate=1e-6,
        lora_learning_rate=1e-5,
        reference=True,
    ),
    # Its first term is that of supervised training. The authors advise 5e-6 to 2e-5 for 7B models
    # (xfactlab/orpo, issue 5); Zephyr-ORPO-141B was made with 5e-6.
    "orpo": Descriptor(
        label="ORPO: learn from preferred answers, without a reference",
        options=OrpoRequest,
        rows=(Format.PREFERENCE,),
        learning_rate=5e-6,
        lora_learning_rate=5e-5,
    ),
    # OpenRLHF's reward models were made with 9e-6, Open-Assistant's with 1e-5; TRL's RewardConfig
    # has 1e-4.
    "reward": Descriptor(
        label="Reward model: learn to grade answers",
        options=RewardRequest,
        rows=(Format.PREFERENCE, Format.RANKING),
        learning_rate=1e-5,
        lora_learning_rate=1e-4,
        head="a reward model, which rates answers",
    ),
    # TRL's GRPOConfig and RLOOConfig have 1e-6.
    "reinforcement": Descriptor(
        label="Reinforcement: learn from graded answers",
        options=ReinforcementRequest,
        rows=(Format.PROMPT,),
        learning_rate=1e-6,
        lora_learning_rate=1e-5,
    ),
    # BERT's own fine-tuning took 2e-5 to 5e-5 (Devlin et al., 2019); decoders as reward models.
    "classification": Descriptor(
        label="Classification: learn labels",
        options=ClassificationRequest,
        rows=(Format.LABELLED,),
        learning_rate=1e-5,
        lora_learning_rate=1e-4,
        head="a classifier, which labels texts",
    ),
}


def usual_method(rows: Format) -> Method:
    """Return the default method for rows of this format."""
    return next(name for name, method in METHODS.items() if rows in method.rows)
