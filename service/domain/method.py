"""The methods of training, and in what they differ for whoever plans them."""

from dataclasses import dataclass
from typing import Final, Literal

from service.domain.row import Format

Method = Literal["supervised", "dpo", "reward"]  # as the API and the trainer call them


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a method learns from, and what it asks of the machines."""

    learns_from: Format
    learning_rate: float  # peak, times the multiplier
    lora_learning_rate: float  # adapters start at zero and need ten to twenty times as much
    reference: bool = False  # a frozen model scores every sequence as well
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
}


def learning_from(rows: Format) -> list[Method]:
    """The methods that a file of such rows is for."""
    return [method for method, traits in METHODS.items() if traits.learns_from is rows]
