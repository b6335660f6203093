"""Count the trained parameters of a model under the options that save memory.

The trainer's side: `trainer/model/base_model.py`, `trainer/methods/supervised.py`, and DeepSpeed's
offload.
"""

from service.domain.models.architecture import Architecture
from trainer.contract import TrainingOptions


def trained_layers(arch: Architecture, options: TrainingOptions) -> int:
    """Return the number of layers with trained weights, without adapters."""
    last_n = options.train_last_n_layers
    return arch.layers if last_n is None else min(last_n, arch.layers)


def layers_with_gradients(arch: Architecture, options: TrainingOptions) -> int:
    """Return the number of layers with gradients: down to the lowest trained weight."""
    return arch.layers if options.train_embeddings else trained_layers(arch, options)


def trained_parameters(arch: Architecture, options: TrainingOptions) -> int:
    """Return the number of parameters with a gradient, a master and moments."""
    if options.lora is not None:
        return arch.lora_parameters(options.lora.rank)
    frozen = (arch.layers - trained_layers(arch, options)) * arch.layer_parameters
    embedding = 0 if options.train_embeddings else arch.embedding_parameters
    return arch.parameters - frozen - embedding
