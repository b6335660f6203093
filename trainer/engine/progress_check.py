"""Check that a run learns: its rows have targets, and its steps change the model.

A target is the unit of a method's loss: a trained token, a pair, a row with a label, a token of an
answer. All figures are summed over the ranks, so all ranks decide alike. `TrainingState.unmoved`
and `TrainingState.tokens` survive a resume.
"""

from collections.abc import Callable, Iterable

import torch

from trainer.contract import RunSpec
from trainer.engine.lr_schedule import learning_rate_of
from trainer.methods.descriptor import descriptor_of
from trainer.process.non_retryable import NonRetryableError
from trainer.process.sync_flags import SyncedFlags, sum_over_ranks
from trainer.state import TrainingState

WARN_AFTER_STEPS = 10  # steps that change nothing, after which the user is warned
_CHECK_EVERY = 64  # micro-batches between two sums over the ranks


class NothingLearnedError(NonRetryableError):
    """The run cannot change, or has not changed, the model; another machine would not help."""


def no_targets_message(spec: RunSpec, file: str) -> str:
    """Return what is wrong with rows without any target, and what to do."""
    kind = descriptor_of(spec)
    return (
        f"{file}: within {spec.max_seq_len} tokens (training.max_seq_len) no row has "
        f"{kind.target}. {kind.remedy}"
    )


def require_rate(spec: RunSpec) -> None:
    """Raise NothingLearnedError where the learning rate is 0 in every step."""
    if not any(learning_rate_of(spec, step) > 0 for step in range(1, spec.total_steps + 1)):
        raise NothingLearnedError(
            f"the learning rate is 0 in all {spec.total_steps} steps, so nothing can be learnt. "
            "Raise it"
        )


def require_targets(
    spec: RunSpec, units: Iterable[int], sync_flags: Callable[[], SyncedFlags], device: torch.device
) -> SyncedFlags | None:
    """Raise NothingLearnedError unless some row of the run has a target; collective.

    Call it when the first step had none. Returns the flags when a stop is requested meanwhile.

    Args:
        units: Targets of each part of this rank's rows, as many parts on every rank.
        sync_flags: Syncs the flags of all ranks.
    """
    total = 0
    for number, part in enumerate(units, 1):
        total += part
        if number % _CHECK_EVERY == 0:
            if (flags := sync_flags()).is_stopping:
                return flags
            if sum_over_ranks(total, device=device)[0]:
                return None
    if not sum_over_ranks(total, device=device)[0]:
        raise NothingLearnedError(no_targets_message(spec, spec.training_file.name))
    return None


def require_learned(spec: RunSpec, state: TrainingState) -> None:
    """Raise NothingLearnedError when no step of a finished run changed the model."""
    if state.tokens == 0:
        raise NothingLearnedError(no_targets_message(spec, spec.training_file.name))
    if state.unmoved:
        raise NothingLearnedError(unchanged_message(spec, state))


def unchanged_message(spec: RunSpec, state: TrainingState) -> str:
    """Return why no step so far has changed the model, and what to do."""
    begin = f"none of the {state.step} steps so far has taught the model anything"
    if state.metrics is not None and state.metrics.skipped:
        return (
            f"{begin}: the gradients of each have overflowed in fp16. Use bf16 or fp32, or lower "
            "loss_scaling.start_power"
        )
    if spec.reinforcement is not None:
        return (
            f"{begin}: all answers that are compared had the same reward in each. Use a grader "
            "that gives partial credit, easier prompts, or a higher temperature"
        )
    return (
        f"{begin}: the gradient was 0 in each. Look at the rows, and at what of the model is frozen"
    )
