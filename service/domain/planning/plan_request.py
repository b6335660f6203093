"""Define everything that a plan depends on."""

from dataclasses import dataclass
from typing import Literal

from rendering.report import DataReport
from service.domain.cloud.fleet import Offering, Price
from service.domain.models.architecture import Architecture
from service.domain.performance.calibration import MeasuredJob
from service.domain.performance.layout import LayoutRequest
from service.domain.planning.plan_limits import NO_LIMITS, PlanLimits
from service.domain.training.recipe import Hyperparameters, Training

Accelerator = Literal["cuda", "cpu"]
CPU_FLOPS = 5e9  # per second, of one trainer process of the local stack
MAX_NODES = 100  # in one placement group


@dataclass(frozen=True, kw_only=True)
class Offer:
    """An offering that may be used; without a price it is only mentioned."""

    offering: Offering
    price: Price | None
    evictions_per_hour: float = 0.0  # of one node
    evictions_from: str = ""  # who says so, for the plan
    forbidden: str = ""  # why the user does not want it, to follow its name


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """Everything that a plan depends on."""

    arch: Architecture
    hyperparameters: Hyperparameters
    training: Training
    examples: int
    mean_tokens: int  # of one row, all its sequences, before they are cut to max_seq_len
    offers: tuple[Offer, ...]
    nodes: int | None = None
    min_nodes: int | None = None  # of an elastic job; None: the world size is kept
    processes_per_node: int | None = None  # None: one per GPU
    accelerator: Accelerator = "cuda"
    cpu_flops: float = CPU_FLOPS
    emulated: bool = False  # machines are processes on this computer; nothing is charged
    recovery_seconds: float = 600.0  # from an eviction, or the first request, to a training step
    max_nodes: int = MAX_NODES
    judge: Architecture | None = None  # of the reward model that grades, if one does
    model: str = ""  # its name; past jobs of the same one say most
    past: tuple[MeasuredJob, ...] = ()  # jobs that were measured
    data: DataReport | None = None  # what the check of the training file's rows counted
    longest: tuple[int, ...] = ()  # guessed tokens of the longest rows' longest sequences, falling
    limits: PlanLimits = NO_LIMITS  # time and money

    @property
    def needs(self) -> LayoutRequest:
        """Return the part that decides the layout."""
        return LayoutRequest(
            arch=self.arch,
            hyperparameters=self.hyperparameters,
            training=self.training,
            examples=self.examples,
            nodes=self.nodes,
            processes_per_node=self.processes_per_node,
            max_nodes=self.max_nodes,
            judge=self.judge.parameters if self.judge else 0,
        )
