"""The optimizer for other programs: parameter groups and hyperparameters.

A checkpoint does not hold them: the trainer derives them from the run spec.
"""

from dataclasses import dataclass
from typing import Any

from trainer.contract import RunSpec
from trainer.contract.deepspeed_config import BETAS, EPSILON
from trainer.convert.whole import FullParameters
from trainer.engine.lr_schedule import learning_rate


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with the same hyperparameters."""

    names: tuple[str, ...]
    numbers: dict[str, Any]  # as torch's AdamW calls them


def parameter_groups(whole: FullParameters, spec: RunSpec) -> list[ParameterGroup]:
    """Return the groups in the trainer's order: matrices decay; norms and biases do not."""
    decayed = tuple(name for name, shape in whole.shapes.items() if len(shape) > 1)
    others = tuple(name for name, shape in whole.shapes.items() if len(shape) <= 1)
    rate = learning_rate(
        max(whole.index.step, 1),
        peak=spec.learning_rate,
        warmup_steps=spec.warmup_steps,
        total_steps=spec.total_steps,
        min_ratio=spec.min_lr_ratio,
    )
    common = {"lr": rate, "betas": BETAS, "eps": EPSILON}
    both = [(decayed, spec.weight_decay), (others, 0.0)]
    return [
        ParameterGroup(names, common | {"weight_decay": decay}) for names, decay in both if names
    ]
