"""The optimizer is on the host while answers are written, and back whatever happens meanwhile."""

from dataclasses import dataclass, field

import pytest
import torch

from trainer.rollout.rollouts import offload_optimizer


@dataclass
class Engine:
    """As much of DeepSpeed's as is asked; it says what it was told."""

    optimizer: torch.optim.Optimizer = field(
        default_factory=lambda: torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
    )
    told: list[object] = field(default_factory=list)

    def offload_states(self, include: list[object]) -> None:
        self.told.append({str(getattr(state, "value", state)) for state in include})

    def reload_states(self) -> None:
        self.told.append("back")


def test_masters_and_moments_go_and_come_back_even_if_answering_fails() -> None:
    engine = Engine()

    with pytest.raises(RuntimeError, match="no memory"), offload_optimizer(engine, enabled=True):
        raise RuntimeError("no memory")

    assert engine.told == [{"optim_states", "hp_params"}, "back"]


def test_nothing_moves_unless_it_is_asked_for() -> None:
    engine = Engine()

    with offload_optimizer(engine, enabled=False):
        pass

    assert engine.told == []
