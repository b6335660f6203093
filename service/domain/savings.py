"""What a user gives up to spend less memory on a GPU, and how much is trained then.

The trainer's side: `trainer/freeze.py`, `trainer/methods/chunks.py`, and DeepSpeed's offload.
"""

from dataclasses import dataclass
from typing import Literal

from service.domain.architecture import Architecture
from trainer.contract import Lora

Offload = Literal["", "optimizer", "parameters"]  # the latter both


@dataclass(frozen=True, kw_only=True)
class Savings:
    """Nothing unless asked for."""

    train_last_n_layers: int | None = None  # None: all; not with adapters
    train_embeddings: bool = True  # with a head that is tied to them
    loss_chunk: int = 0  # positions that have logits at once; 0: all
    offload: Offload = ""

    @property
    def freezes(self) -> bool:
        """True when a part of a full fine-tune is left as it is."""
        return self.train_last_n_layers is not None or not self.train_embeddings

    def layers(self, arch: Architecture) -> int:
        """Layers that are trained."""
        asked = self.train_last_n_layers
        return arch.layers if asked is None else min(asked, arch.layers)

    def reached(self, arch: Architecture) -> int:
        """Layers through which gradients flow: down to the lowest thing that is trained."""
        return arch.layers if self.train_embeddings else self.layers(arch)


NONE = Savings()


def trained_parameters(arch: Architecture, lora: Lora | None, savings: Savings = NONE) -> int:
    """Parameters that have a gradient, a master and moments."""
    if lora is not None:
        return arch.lora_parameters(lora.rank)
    left = arch.layers - savings.layers(arch)
    frozen = left * arch.layer_parameters
    return arch.parameters - frozen - (0 if savings.train_embeddings else arch.embedding_parameters)
