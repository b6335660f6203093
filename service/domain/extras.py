"""What a user may ask of the trainer beside what is trained: nothing of it unless asked for.

The trainer's side: `trainer/spikes.py`, `trainer/faster.py`, `trainer/rollout/aside.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from contract.choices import Method
from trainer.contract import SpikeGuard

OnSpike = Literal["", "warn", "stop"]
Scaling = Literal["", "linear", "square_root"]
PLUS_PLUS = ("hpz", "qwz", "qgz")

Rule = tuple[str, object, bool, str]  # parameter, its value, whether it is fine, what would be


@dataclass(frozen=True, kw_only=True)
class Extras:
    """Each is off as it stands here."""

    on_spike: OnSpike = ""
    compiled: bool = False
    fused_kernels: bool = False
    zero_plus_plus: str = ""  # of PLUS_PLUS, joined by +
    rollout_offload: bool = False
    scaling: Scaling = ""  # of the learning rate, with the batch
    base_batch: int = 0  # that the learning rate was found with

    @property
    def parts(self) -> tuple[str, ...]:
        """Of ZeRO++."""
        return tuple(self.zero_plus_plus.split("+")) if self.zero_plus_plus else ()

    @property
    def spike_guard(self) -> SpikeGuard | None:
        """As the trainer gets it."""
        return SpikeGuard(on_spike=self.on_spike) if self.on_spike else None

    def scaled(self, rate: float, global_batch: int) -> float:
        """The learning rate for this batch (Goyal et al., 2017; Krizhevsky, 2014)."""
        if not self.scaling:
            return rate
        times = global_batch / self.base_batch
        return rate * (times if self.scaling == "linear" else times**0.5)

    def members(self) -> dict[str, Any]:
        """Of the run spec."""
        return {
            "spike_guard": self.spike_guard,
            "compiled": self.compiled,
            "fused_kernels": self.fused_kernels,
            "zero_plus_plus": self.parts,
            "rollout_offload": self.rollout_offload,
        }


NO_EXTRAS = Extras()


def rules(extras: Extras | None, method: Method, zero_stage: int | None) -> Iterator[Rule]:
    """Every option held against what it goes with."""
    if extras is None:
        return
    learns = method == "reinforcement"
    why = "left out with method reinforcement, whose loss is about 0 and has no spikes"
    yield "training.on_spike", extras.on_spike, not (extras.on_spike and learns), why
    parts = extras.parts
    known = set(parts) <= set(PLUS_PLUS)
    yield "training.zero_plus_plus", parts, known, f"some of {', '.join(PLUS_PLUS)}"
    fits = not parts or zero_stage == 3
    yield "training.zero_plus_plus", parts, fits, "left out unless training.zero_stage is 3"
    fits = learns or not extras.rollout_offload
    yield "training.rollout_offload", "true", fits, "left out unless the method is reinforcement"
    fits = not extras.scaling or extras.base_batch >= 1
    at = "training.learning_rate_scaling.base_batch"
    yield at, extras.base_batch, fits, "1 or more"
