"""The method that a run spec names."""

from pathlib import Path
from typing import Any

from trainer.contract import RunSpec
from trainer.methods.reward import Reward
from trainer.methods.scores import Method
from trainer.methods.sft import Sft

METHODS = ("supervised", "dpo", "reward")


def require_known(spec: RunSpec) -> None:
    """Raise ValueError for a method that this trainer does not have."""
    if spec.method not in METHODS:
        known = ", ".join(METHODS)
        raise ValueError(f"method {spec.method!r} is none that this trainer knows: {known}")
    if (spec.dpo is not None) != (spec.method == "dpo"):
        raise ValueError(f"method {spec.method!r} and member `dpo` do not go together")
    if spec.packing and spec.method == "reward":
        raise ValueError(
            "a reward is read at the end of each row: `packing` is not for reward models"
        )


def choose(engine: Any, base: Path, spec: RunSpec, config: dict[str, Any]) -> Method:  # noqa: ANN401
    """Make it; ``base`` holds the base model's files."""
    if spec.method == "supervised":
        return Sft()
    if spec.method == "reward":
        return Reward()
    assert spec.dpo is not None
    from trainer.methods.dpo import Dpo  # noqa: PLC0415 - a supervised run saves the imports
    from trainer.methods.reference import make_reference  # noqa: PLC0415

    return Dpo(spec.dpo, make_reference(engine, base, spec, config))
