"""What a job does when memory runs out: the same rows, with less of them at once. Pure.

Down the ladder: micro-batches are halved until they are of one sample, which costs little; then
activations are computed again instead of kept, which costs a third of the time. The global batch
stays, as micro-steps make up for it. Nobody climbs up again: the longest rows come again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainer.contract import Rung

_WAYS_OUT = (
    "What needs less of each GPU: LoRA or QLoRA, the optimizer offloaded, a shorter max_seq_len, "
    "or more nodes with zero_stage 3."
)


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Where a job is on it, and whether it must go down."""

    planned: Rung | None = None  # the highest rung; None: the plan does not say
    rung: Rung | None = None  # of the job's newest generation; None: as planned
    short_in: int | None = None  # the step of that one in which memory ran out, if it did

    @property
    def below(self) -> Rung | None:
        """The rung to go down to; None where memory did not run out, or on the lowest."""
        if self._now is None or self.short_in is None:
            return None
        return next_rung(self._now)

    @property
    def because(self) -> str:
        """What is new on the rung below, and why; empty if there is no need for it."""
        if self._now is None or (below := self.below) is None:
            return ""
        return f"{_change(self._now, below)}: memory ran out in step {self.short_in}"

    @property
    def exhausted(self) -> str:
        """Why it is of no use to go on: what was tried, what the user can do. Empty if it is."""
        if self.planned is None or self.short_in is None or self.below is not None:
            return ""
        sizes = dict.fromkeys(str(rung.micro_batch) for rung in down_from(self.planned))
        how = "with" if self.planned.gradient_checkpointing else "then"
        return (
            f"memory ran out in step {self.short_in}, and no less can be taken at once: "
            f"micro-batch {_listed(list(sizes))}, {how} gradient_checkpointing, did not fit. "
            f"{_WAYS_OUT}"
        )

    @property
    def _now(self) -> Rung | None:
        return self.rung or self.planned


AS_PLANNED = Ladder()


def next_rung(now: Rung) -> Rung | None:
    """The one below; None on the lowest.

    >>> next_rung(Rung(micro_batch=6, gradient_checkpointing=False)).micro_batch
    3
    """
    if now.micro_batch > 1:
        return replace(now, micro_batch=_smaller(now.micro_batch))
    return None if now.gradient_checkpointing else replace(now, gradient_checkpointing=True)


def down_from(rung: Rung | None) -> Iterator[Rung]:
    """It and every rung below it."""
    while rung is not None:
        yield rung
        rung = next_rung(rung)


def _change(before: Rung, after: Rung) -> str:
    if before.micro_batch != after.micro_batch:
        return f"micro-batch {after.micro_batch} instead of {before.micro_batch}"
    return "activations computed again instead of kept (gradient_checkpointing)"


def _smaller(micro_batch: int) -> int:
    """The largest divisor below it, half of it if it is even: shares that were whole stay so."""
    return next(micro_batch // d for d in range(2, micro_batch + 1) if micro_batch % d == 0)


def _listed(items: list[str]) -> str:
    """As a sentence has them: one; one and another; one, another and a third."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
