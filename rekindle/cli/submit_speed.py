"""Options of `rekindle submit` for how steps are computed, and what is done when they go wrong."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from rekindle.cli.trouble import ExitCode, Trouble

Json = dict[str, Any]
_PANEL = "How steps are computed"


class Precision(StrEnum):
    """Of the weights that compute; masters are fp32 always."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


class OnSpike(StrEnum):
    """What a loss that jumps is answered with."""

    WARN = "warn"
    STOP = "stop"


class Rule(StrEnum):
    """How the learning rate grows with the batch."""

    LINEAR = "linear"
    SQUARE_ROOT = "square_root"


class Part(StrEnum):
    """Of ZeRO++."""

    HPZ = "hpz"
    QWZ = "qwz"
    QGZ = "qgz"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Nothing of it if nothing is told."""

    precision: Annotated[
        Precision | None,
        typer.Option("--precision", help="bf16 if not told.", rich_help_panel=_PANEL),
    ] = None
    on_spike: Annotated[
        OnSpike | None,
        typer.Option(
            "--on-spike",
            help="A loss of 3 times the usual for 3 steps is told, or ends the job.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    compiled: Annotated[
        bool, typer.Option("--compile", help="By torch, on GPUs.", rich_help_panel=_PANEL)
    ] = False
    fused_kernels: Annotated[
        bool,
        typer.Option("--fused-kernels", help="Liger's, on GPUs.", rich_help_panel=_PANEL),
    ] = False
    zero_plus_plus: Annotated[
        list[Part] | None,
        typer.Option(
            "--zero-plus-plus",
            help="Less to send under ZeRO stage 3; may be told several times.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    rollout_offload: Annotated[
        bool,
        typer.Option(
            "--rollout-offload",
            help="Reinforcement: the optimizer waits on the host while answers are written.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    offload_parameters: Annotated[
        bool,
        typer.Option(
            "--offload-parameters",
            help="Weights and optimizer in the machine's own memory: much slower.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    scale_learning_rate: Annotated[
        Rule | None,
        typer.Option(
            "--scale-learning-rate",
            help="With the batch, from --base-batch on.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    base_batch: Annotated[
        int | None,
        typer.Option(
            "--base-batch",
            min=1,
            help="That the learning rate was found with.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def members(self) -> Json:
        """Of the request's ``training``; only what was told. Raises Trouble."""
        if (self.scale_learning_rate is None) != (self.base_batch is None):
            raise Trouble(
                "--scale-learning-rate and --base-batch go together.",
                "Give both, such as --scale-learning-rate linear --base-batch 32.",
                exit_code=ExitCode.USAGE,
                code="no_base_batch",
            )
        scaling = {"rule": self.scale_learning_rate, "base_batch": self.base_batch}
        told = {
            "precision": self.precision,
            "on_spike": self.on_spike,
            "compiled": self.compiled,
            "fused_kernels": self.fused_kernels,
            "zero_plus_plus": self.zero_plus_plus,
            "zero_stage": 3 if self.zero_plus_plus else None,
            "rollout_offload": self.rollout_offload,
            "offload": "parameters" if self.offload_parameters else None,
            "learning_rate_scaling": scaling if self.base_batch else None,
        }
        return {name: value for name, value in told.items() if value}
