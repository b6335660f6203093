"""The methods of training, and in what they differ for whoever plans them."""

from dataclasses import dataclass
from typing import Final

from contract.choices import Method
from service.domain.row import Format
from trainer.contract import Ranked, Reinforcement


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a method learns from, and what it asks of the machines."""

    learns_from: Format
    learning_rate: float  # peak, times the multiplier
    lora_learning_rate: float  # adapters start at zero and need ten to twenty times as much
    reference: bool = False  # a frozen model scores every sequence as well, always
    logits: bool = True  # over the vocabulary, for every token

    @property
    def sequences(self) -> int:
        """How many a sample is."""
        return self.learns_from.sequences


METHODS: Final[dict[Method, Traits]] = {
    "supervised": Traits(
        learns_from=Format.CHAT,
        learning_rate=1e-5,
        lora_learning_rate=2e-4,
    ),
    # Preferences move a model that can answer already. TRL's DPOConfig has 1e-6; Zephyr was made
    # with 5e-7 (Tunstall et al., 2023).
    "dpo": Traits(
        learns_from=Format.PREFERENCE,
        learning_rate=1e-6,
        lora_learning_rate=1e-5,
        reference=True,
    ),
    # OpenRLHF's reward models were made with 9e-6, Open-Assistant's with 1e-5; TRL's RewardConfig
    # has 1e-4.
    "reward": Traits(
        learns_from=Format.PREFERENCE,
        learning_rate=1e-5,
        lora_learning_rate=1e-4,
        logits=False,  # one number for a sequence
    ),
    # BERT's own fine-tuning took 2e-5 to 5e-5 (Devlin et al., 2019); decoders as reward models.
    "classification": Traits(
        learns_from=Format.LABELLED,
        learning_rate=1e-5,
        lora_learning_rate=1e-4,
        logits=False,  # one number for each label
    ),
    # TRL's GRPOConfig and RLOOConfig have 1e-6.
    "reinforcement": Traits(
        learns_from=Format.PROMPT,
        learning_rate=1e-6,
        lora_learning_rate=1e-5,
    ),
}


def formats(method: Method, ranked: Ranked | None) -> tuple[Format, ...]:
    """Return the formats of rows that the method takes; a preference is a ranking of two."""
    if ranked is not None:
        return (Format.RANKING, Format.PREFERENCE)
    return (METHODS[method].learns_from,)


def learning_from(rows: Format) -> list[str]:
    """The methods that a file of such rows is for, as a message names them."""
    if rows is Format.RANKING:
        return ["reward with loss ranked_margin"]
    return [method for method, traits in METHODS.items() if traits.learns_from is rows]


def keeps_reference(method: Method, reinforcement: Reinforcement | None) -> bool:
    """Whether a frozen model scores every sequence as well."""
    dear = reinforcement is not None and reinforcement.beta > 0
    return METHODS[method].reference or dear


def models_trained(reinforcement: Reinforcement | None) -> int:
    """PPO's critic is a second model of the same size."""
    return 2 if reinforcement is not None and reinforcement.algorithm == "ppo" else 1
