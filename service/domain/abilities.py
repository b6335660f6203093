"""What a base model can be asked for: not every family has all that our trainer does with Llama."""

from collections.abc import Iterator

from contract.choices import Method
from service.domain.architecture import Architecture
from service.domain.method import models_trained
from trainer.contract import Lora, Reinforcement

Rule = tuple[str, object, bool, str]  # parameter, its value, whether it is fine, what would be


def rules(
    arch: Architecture,
    method: Method,
    lora: Lora | None,
    loss_chunk: int,
    reinforcement: Reinforcement | None,
) -> Iterator[Rule]:
    """One for each that there may be something wrong with."""
    fits = not arch.encoder or method == "classification"
    yield "method.type", method, fits, "classification with this base model, which writes no text"
    why = "left out with this base model: its matrices lie the other way round (Conv1D)"
    yield "training.adapter", "lora", lora is None or arch.adapts, why
    why = "left out with this base model: something may happen to its logits behind their head"
    yield "training.loss_chunk", loss_chunk, loss_chunk == 0 or arch.packs, why
    if reinforcement:
        fits = arch.critic or models_trained(reinforcement) == 1
        why = "grpo or rloo with this base model: transformers has no critic of its family"
        yield "method.reinforcement.algorithm", reinforcement.algorithm, fits, why
