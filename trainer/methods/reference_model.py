"""The reference model: the base model before any training.

With adapters it is the model itself with its adapters disabled. A full fine-tune has a second copy
in the run's precision, sharded under ZeRO-3. Nothing of it is saved: the base model is the same in
every generation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import deepspeed
import torch

from trainer.contract import RunSpec
from trainer.data.batch import Batch
from trainer.methods.forward import log_probabilities
from trainer.model.actor_critic import actor_of
from trainer.model.base_model import load_base
from trainer.model.eval_mode import evaluation_mode

# From a batch to the log-probability of each trained token before any training [trained tokens].
ReferenceModel = Callable[[Batch], torch.Tensor]
TRAINING_ONLY = ("optimizer", "gradient_clipping", "data_types")


def make_reference(
    engine: Any,  # noqa: ANN401
    base: Path,
    spec: RunSpec,
    config: dict[str, Any],
) -> ReferenceModel:
    """Build the reference for this engine; ``base`` holds the base model's files."""
    temperature = spec.reinforcement.temperature if spec.reinforcement else 1.0
    if spec.lora is not None:
        return disabled_adapters(engine, temperature)
    model = load_base(base, spec, config).requires_grad_(False)
    if spec.zero_stage == 3:
        inference_config = {
            name: value for name, value in config.items() if name not in TRAINING_ONLY
        }
        model, *_ = deepspeed.initialize(model=model, config=inference_config)
    else:
        model.to(engine.device)
    model.eval()
    reference: ReferenceModel = torch.no_grad()(
        partial(log_probabilities, model, temperature=temperature)
    )
    return reference


def disabled_adapters(engine: Any, temperature: float) -> ReferenceModel:  # noqa: ANN401
    """Return the trained model with its adapters disabled."""

    def log_probabilities_without(batch: Batch) -> torch.Tensor:
        with torch.no_grad(), evaluation_mode(engine), _without_adapters(engine):
            return log_probabilities(engine, batch, temperature)

    return log_probabilities_without


@contextmanager
def _without_adapters(engine: Any) -> Iterator[None]:  # noqa: ANN401
    """Disable the adapters; peft's `disable_adapter` searches the whole model each time."""
    model = actor_of(engine.module).base_model
    model.disable_adapter_layers()
    try:
        yield
    finally:
        model.enable_adapter_layers()
