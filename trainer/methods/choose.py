"""The method that a run spec names."""

from pathlib import Path
from typing import Any

from trainer.contract import RunSpec
from trainer.heads import has_head
from trainer.hopeless import Hopeless
from trainer.methods.chunks import ChunkedSft
from trainer.methods.classification import Classification
from trainer.methods.ranked import RankedMargin
from trainer.methods.reward import Reward
from trainer.methods.scores import Method
from trainer.methods.sft import Sft

METHODS = ("supervised", "dpo", "reward", "classification", "reinforcement")


def require_known(spec: RunSpec) -> None:
    """Raise ValueError for a method that this trainer does not have."""
    if spec.method not in METHODS:
        known = ", ".join(METHODS)
        raise Hopeless(f"method {spec.method!r} is none that this trainer knows: {known}")
    if (spec.dpo is not None) != (spec.method == "dpo"):
        raise Hopeless(f"method {spec.method!r} and member `dpo` do not go together")
    if (spec.reinforcement is not None) != (spec.method == "reinforcement"):
        raise Hopeless(f"method {spec.method!r} and member `reinforcement` do not go together")
    if (spec.ranked, spec.answers_per_row) != (None, 2) and spec.method != "reward":
        raise Hopeless(f"method {spec.method!r} learns from no rankings: leave out `ranked`")
    if spec.loss_chunk and spec.method != "supervised":
        raise Hopeless(f"method {spec.method!r} knows no chunks: leave out `loss_chunk`")
    if (spec.mix or spec.curriculum) and spec.method == "reinforcement":
        raise Hopeless("prompts are shuffled: leave out `mix` and `curriculum`")
    if spec.mix is not None and spec.curriculum is not None:
        raise Hopeless("rows have one order: leave out `mix` or `curriculum`")
    if (len(spec.labels) > 1) != (spec.method == "classification"):
        raise Hopeless(f"method {spec.method!r} does not go with {len(spec.labels)} labels")
    if spec.packing and (has_head(spec) or spec.method == "reinforcement"):
        raise Hopeless(f"method {spec.method!r} pads its rows: `packing` is not for it")


def choose(engine: Any, base: Path, spec: RunSpec, config: dict[str, Any]) -> Method:  # noqa: ANN401
    """Make it; ``base`` holds the base model's files."""
    if spec.method == "supervised":
        return ChunkedSft(engine.module, spec.loss_chunk) if spec.loss_chunk else Sft()
    if spec.method == "reward":
        return _reward(spec)
    if spec.method == "classification":
        return Classification()
    if spec.reinforcement is not None:
        from trainer.methods.policy import make_policy  # noqa: PLC0415 - see below

        return make_policy(spec.reinforcement)
    assert spec.dpo is not None
    from trainer.methods.dpo import Dpo  # noqa: PLC0415 - a supervised run saves the imports
    from trainer.methods.reference import make_reference  # noqa: PLC0415

    return Dpo(spec.dpo, make_reference(engine, base, spec, config))


def _reward(spec: RunSpec) -> Method:
    if spec.ranked is not None:
        return RankedMargin(spec.ranked, spec.answers_per_row, spec.total_steps)
    if spec.answers_per_row != 2:
        raise Hopeless("rows of more than two answers are for `ranked`")
    return Reward()
