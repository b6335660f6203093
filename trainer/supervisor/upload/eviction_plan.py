"""Decide what to do in the seconds before an eviction. Pure.

A save is worth the steps since the last commit. It is worth nothing if it cannot be complete in
Blob in time; then the network belongs to earlier saves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

COMMIT_SECONDS = 2.0  # records, manifest and HEAD, once all data is in Blob
CAUTION = 1.2  # safety factor on all measurements
USED = 0.7  # share of the cap: an upload this fast may have been limited by it
UNCAPPED = 2.0  # minimum rate without the cap; ND A100 v4 has three times our cap
LEISURE = 0.25  # of the time for a save; a request just after a check waits for two steps


class EvictionChoice(Enum):
    """What to do about a notice."""

    FINISH_STEP = "finish the step that is under way, then save"
    SAVE_NOW = "drop what is done of the step, and save"
    RELY = "save nothing more: what is on its way, or was committed, must do"


@dataclass(frozen=True, kw_only=True)
class EvictionOutlook:
    """Measurements of one node, in bytes and seconds; None: not measured yet."""

    seconds_left: float  # until the eviction
    step: float | None  # one training step
    micro_steps: int  # in a step: a stop is checked before each
    size: int  # of this node's part of a save
    pending: int  # of earlier saves, still to be uploaded
    rate: float | None  # of the last upload, bytes per second


@dataclass(frozen=True, kw_only=True)
class EvictionDecision:
    """The choice, and its reason."""

    choice: EvictionChoice
    needed_seconds: float | None = None  # seconds for a save now; None: nothing was measured
    seconds_left: float = 0.0


def decide_on_eviction(outlook: EvictionOutlook) -> EvictionDecision:
    """Decide by the time that a save needs, `t_boundary + (pending + size) / rate + t_commit`.

    Without measurements a save is tried: it may succeed and costs nothing.
    """
    if outlook.rate is None or outlook.step is None:
        return EvictionDecision(choice=EvictionChoice.SAVE_NOW, seconds_left=outlook.seconds_left)
    needed_seconds = seconds_to_save(outlook)
    if needed_seconds > outlook.seconds_left:
        choice = EvictionChoice.RELY
    elif needed_seconds + CAUTION * outlook.step <= outlook.seconds_left:
        choice = EvictionChoice.FINISH_STEP
    else:
        choice = EvictionChoice.SAVE_NOW
    return EvictionDecision(
        choice=choice, needed_seconds=needed_seconds, seconds_left=outlook.seconds_left
    )


def seconds_to_save(outlook: EvictionOutlook) -> float:
    """Return the seconds from the notice to the commit: micro-step, uploads, commit."""
    assert outlook.rate is not None
    assert outlook.step is not None
    boundary = outlook.step / outlook.micro_steps
    wire = (outlook.pending + outlook.size) / outlook.rate
    return CAUTION * (boundary + wire) + COMMIT_SECONDS


def has_time_for_step(seconds_left: float, step: float | None) -> bool:
    """Return whether a stop that may take ``seconds_left`` can wait for the end of a step."""
    return step is not None and step <= LEISURE * seconds_left


def unsent_bytes(sizes: Sequence[int], sent: float) -> int:
    """Return the bytes of saves still to upload, when ``sent`` of the first one are."""
    first, *others = sizes or (0,)
    return max(first - int(sent), 0) + sum(others)


def uncapped_rate(measured: float | None, cap: float) -> float | None:
    """Estimate the upload rate without its cap, from the rate under it."""
    if measured is None or measured < USED * cap:
        return measured
    return UNCAPPED * cap


def decision_message(decision: EvictionDecision) -> str:
    """Return the decision as a message to the user."""
    time_left = f"{decision.seconds_left:.0f} s"
    if decision.needed_seconds is None:
        return f"Azure takes the machine in {time_left}: saving at once"
    save_text = f"a save takes about {decision.needed_seconds:.0f} s"
    if decision.choice is EvictionChoice.RELY:
        return (
            f"Azure takes the machine in {time_left}, and {save_text}: it would not be whole. "
            "Training goes on from the newest checkpoint that is committed by then"
        )
    if decision.choice is EvictionChoice.SAVE_NOW:
        return f"Azure takes the machine in {time_left}, and {save_text}: saving at once"
    return f"Azure takes the machine in {time_left}, and {save_text}: the step is finished first"
