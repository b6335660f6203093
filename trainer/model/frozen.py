"""Freeze parameters of a full fine-tune.

A frozen parameter has no gradient, no optimizer state and no place in checkpoints: a resume loads
it from the base model's files.
"""

from typing import Any

import torch

from trainer.contract import RunSpec
from trainer.process.non_retryable import NonRetryableError


def freeze_parameters(model: Any, spec: RunSpec) -> None:  # noqa: ANN401 - transformers is untyped here
    """Freeze what the run spec says; with adapters peft has frozen the base."""
    if spec.train_last_n_layers is not None:
        layers = _layers(model)
        if not 1 <= spec.train_last_n_layers <= len(layers):
            raise NonRetryableError(
                f"train_last_n_layers is {spec.train_last_n_layers}, but the base model has "
                f"{len(layers)} layers: ask for 1 to {len(layers)}"
            )
        for layer in layers[: -spec.train_last_n_layers]:
            layer.requires_grad_(False)
    if not spec.train_embeddings:
        model.get_input_embeddings().requires_grad_(False)


def require_freezable(spec: RunSpec) -> None:
    """Raise NonRetryableError where adapters freeze the base model already."""
    if spec.freezes and spec.lora is not None:
        raise NonRetryableError(
            "adapters freeze the whole base: leave out what else is to be frozen"
        )


def _layers(model: Any) -> Any:  # noqa: ANN401
    """Return the decoder's layers: the longest list of modules."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    if not lists:
        raise NonRetryableError("the base model has no list of layers; train all of it")
    return max(lists, key=len)
