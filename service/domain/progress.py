"""How far a job is, by the nodes' reports and by its committed checkpoints. Pure.

Reports may stop before training does, when the network to the service fails and storage still
answers. What is committed then counts, not the last report.
"""

from collections.abc import Mapping
from typing import Any

OF_METHODS = ("margin", "reward", "kl", "answer_tokens")  # null where the method has none
OF_A_STEP = ("loss", "valid_loss", *OF_METHODS)


def with_committed(
    progress: Mapping[str, Any], step: int, *, over: bool, valid_loss: float | None = None
) -> dict[str, Any]:
    """Return ``progress``, or that of the committed ``step`` where the reports end before it.

    A job that is ``over`` shows no figure of an earlier step: no report will replace it.
    """
    if step <= progress.get("step", 0):
        return dict(progress)
    figures = dict.fromkeys(OF_A_STEP) | {"valid_loss": valid_loss} if over else {}
    return {**progress, **figures, "step": step}
