"""fp16's loss scale: what is remembered of it, and what a step that overflowed is."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import LossScaling
from trainer.engine import deepspeed_engine as ds
from trainer.engine import loss_scale
from trainer.engine.loss_scale import LossScale

HALF = replace(SPEC, precision="fp16")


@dataclass
class Optimizer:
    """As much of DeepSpeed's as the loss scale is about."""

    loss_scaler: Any = field(
        default_factory=lambda: DynamicLossScaler(
            init_scale=8.0,
            scale_window=2,
            min_scale=1.0,
            delayed_shift=1,
            consecutive_hysteresis=False,
        )
    )
    overflow: bool = False


@dataclass
class Engine:
    """An update of which overflows, or not, as it is told."""

    overflows: bool = False
    optimizer: Optimizer = field(default_factory=Optimizer)

    def step(self) -> None:
        self.optimizer.overflow = self.overflows
        if not self.overflows:
            self.optimizer.loss_scaler.update_scale(False)

    def zero_optimization_stage(self) -> int:
        return 2

    def get_global_grad_norm(self) -> float:
        return 0.5


def test_a_scale_that_is_restored_grows_at_the_same_step_as_the_one_that_was_saved() -> None:
    saved, resumed = Engine(), Engine()
    for _ in range(4):
        saved.step()

    loss_scale.restore_loss_scale(resumed, loss_scale.read_loss_scale(saved))

    for _ in range(5):
        assert loss_scale.read_loss_scale(resumed) == loss_scale.read_loss_scale(saved)
        saved.step()
        resumed.step()
    assert loss_scale.scale_value(saved) == 128.0


def test_a_checkpoint_without_a_scale_leaves_it_as_it_begins() -> None:
    engine = Engine()

    loss_scale.restore_loss_scale(engine, None)

    assert loss_scale.read_loss_scale(engine) == LossScale(
        scale=8.0, steps=0, overflowed_at=-1, patience=1
    )


def test_an_update_that_overflows_is_left_out_unless_the_scale_has_nowhere_to_fall() -> None:
    lowest = Engine(overflows=True)
    lowest.optimizer.loss_scaler.cur_scale = 1.0

    assert ds.update_parameters(Engine()) == 0.5
    assert ds.update_parameters(Engine(overflows=True)) is None
    assert ds.update_parameters(lowest) == math.inf


def test_fp16_has_a_dynamic_scale_and_sums_its_gradients_in_fp32() -> None:
    config = ds.build_config(replace(HALF, loss_scaling=LossScaling(window=7)), 2)

    assert config["fp16"]["enabled"]
    assert not config["bf16"]["enabled"]
    assert (config["fp16"]["loss_scale"], config["fp16"]["loss_scale_window"]) == (0, 7)
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}
    assert "fp16" not in ds.build_config(SPEC, 2)
