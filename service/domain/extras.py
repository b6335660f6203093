"""What a user may ask of the trainer beside what is trained: nothing of it unless asked for.

The trainer's side: `trainer/spikes.py`, `trainer/faster.py`, `trainer/rollout/aside.py`.
"""

from dataclasses import dataclass
from typing import Any, Literal

from trainer.contract import SpikeGuard

OnSpike = Literal["", "warn", "stop"]
Scaling = Literal["", "linear", "square_root"]


@dataclass(frozen=True, kw_only=True)
class Extras:
    """Each is off as it stands here."""

    on_spike: OnSpike = ""
    compiled: bool = False
    fused_kernels: bool = False
    zero_plus_plus: str = ""  # hpz, qwz and qgz, joined by +
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
