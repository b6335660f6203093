"""Reduce memory use after an out-of-memory error, with the same rows per step. Pure.

First the micro-batch is halved down to one sample, which costs little; then gradient checkpointing
recomputes activations, which costs a third of the time. The global batch stays, as micro-steps make
up for it. The reduction is never undone: the longest rows come again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainer.contract import Rung

_WAYS_OUT = (
    "What needs less of each GPU: LoRA or QLoRA, the optimizer offloaded, a shorter max_seq_len, "
    "or more nodes with zero_stage 3."
)


@dataclass(frozen=True, kw_only=True)
class OomFallback:
    """The present reduction of a job, and whether it must be reduced further."""

    planned: Rung | None = None  # the highest rung; None: the plan does not say
    rung: Rung | None = None  # of the job's newest generation; None: as planned
    oom_step: int | None = None  # the step of that one in which memory ran out, if it did

    @property
    def below(self) -> Rung | None:
        """Return the next reduction; None without an out-of-memory error, or at the end."""
        if self._current_rung is None or self.oom_step is None:
            return None
        return next_rung(self._current_rung)

    @property
    def because(self) -> str:
        """Return what changes and why; empty without a change."""
        if self._current_rung is None or (below := self.below) is None:
            return ""
        return f"{_change(self._current_rung, below)}: memory ran out in step {self.oom_step}"

    @property
    def exhausted(self) -> str:
        """Return why no reduction is left, and what the user can do; else empty."""
        if self.planned is None or self.oom_step is None or self.below is not None:
            return ""
        sizes = dict.fromkeys(str(rung.micro_batch) for rung in rungs_from(self.planned))
        how = "with" if self.planned.gradient_checkpointing else "then"
        return (
            f"memory ran out in step {self.oom_step}, and no less can be taken at once: "
            f"micro-batch {_join_words(list(sizes))}, {how} gradient_checkpointing, did not fit. "
            f"{_WAYS_OUT}"
        )

    @property
    def _current_rung(self) -> Rung | None:
        return self.rung or self.planned


AS_PLANNED = OomFallback()


def next_rung(now: Rung) -> Rung | None:
    """Return the next reduction; None at the last one.

    >>> next_rung(Rung(micro_batch=6, gradient_checkpointing=False)).micro_batch
    3
    """
    if now.micro_batch > 1:
        return replace(now, micro_batch=_smaller(now.micro_batch))
    return None if now.gradient_checkpointing else replace(now, gradient_checkpointing=True)


def rungs_from(rung: Rung | None) -> Iterator[Rung]:
    """Yield this reduction and every further one."""
    while rung is not None:
        yield rung
        rung = next_rung(rung)


def _change(before: Rung, after: Rung) -> str:
    if before.micro_batch != after.micro_batch:
        return f"micro-batch {after.micro_batch} instead of {before.micro_batch}"
    return "activations computed again instead of kept (gradient_checkpointing)"


def _smaller(micro_batch: int) -> int:
    """Return the largest proper divisor, so that shares stay whole."""
    return next(micro_batch // d for d in range(2, micro_batch + 1) if micro_batch % d == 0)


def _join_words(items: list[str]) -> str:
    """Join items for a sentence: one; one and two; one, two and three."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
