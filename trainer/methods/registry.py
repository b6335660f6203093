"""Check and build the method that a run spec names."""

from trainer.contract import RunSpec
from trainer.methods.descriptor import MethodInputs, descriptor_of, method_options_of
from trainer.methods.interface import Method
from trainer.model.sequence_head import has_head
from trainer.process.non_retryable import NonRetryableError


def require_valid_method(spec: RunSpec) -> None:
    """Raise NonRetryableError for an unknown method or options of another one."""
    if options := descriptor_of(spec).options:
        method_options_of(spec, options)
    elif spec.method_options:
        raise NonRetryableError(f"method {spec.method!r} has no member `method_options`")
    _require_own_members(spec)
    if spec.loss_chunk and spec.method != "supervised":
        raise NonRetryableError(f"method {spec.method!r} knows no chunks: leave out `loss_chunk`")
    if (spec.mix or spec.curriculum) and spec.method == "reinforcement":
        raise NonRetryableError("prompts are shuffled: leave out `mix` and `curriculum`")
    if spec.mix is not None and spec.curriculum is not None:
        raise NonRetryableError("rows have one order: leave out `mix` or `curriculum`")
    if spec.packing and (has_head(spec) or spec.method == "reinforcement"):
        raise NonRetryableError(f"method {spec.method!r} pads its rows: `packing` is not for it")


def _require_own_members(spec: RunSpec) -> None:
    """Raise NonRetryableError for options of another method."""
    if (spec.dpo is not None) != (spec.method == "dpo"):
        raise NonRetryableError(f"method {spec.method!r} and member `dpo` do not go together")
    if (spec.reinforcement is not None) != (spec.method == "reinforcement"):
        raise NonRetryableError(
            f"method {spec.method!r} and member `reinforcement` do not go together"
        )
    if (spec.ranked, spec.answers_per_row) != (None, 2) and spec.method != "reward":
        raise NonRetryableError(
            f"method {spec.method!r} learns from no rankings: leave out `ranked`"
        )
    if (len(spec.labels) > 1) != (spec.method == "classification"):
        raise NonRetryableError(
            f"method {spec.method!r} does not go with {len(spec.labels)} labels"
        )


def make_method(making: MethodInputs) -> Method:
    """Build the method."""
    return descriptor_of(making.spec).make(making)
