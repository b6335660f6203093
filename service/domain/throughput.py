"""How long an optimizer step takes: a roofline of compute, network and kernel launches.

Not calibrated on the job itself, so it comes with a wide interval; the measured steps of a
running job replace it. Fitted to published speeds: MosaicML's llm-foundry benchmarks for the
matrix units, QwenLM's README for what Hugging Face models reach of that and for launches,
DeepSpeed's multi-node ZeRO-3 runs for the network.
"""

from dataclasses import dataclass

from service.domain.architecture import Architecture
from service.domain.catalogue import Sku
from service.domain.method import METHODS, Method

_STACK = 0.8  # Hugging Face models under DeepSpeed against a training stack tuned by hand
_EFFICIENCY = {"A100": (0.72, 400), "H100": (0.56, 800)}  # share of the peak; width of half of it
_UNKNOWN_GPU = (0.5, 800)
_LAUNCH_SECONDS = 0.0064  # per layer and micro-step, forward and backward: kernels never go faster
_LINE_RATE = 0.64  # of InfiniBand and Ethernet that collectives reach across nodes
_OVERLAP = 0.7  # of the shorter of compute and network that hides behind the longer
_FORWARD = 1 / 3  # of a forward and a backward pass; checkpointing runs it once more

_ONE_NODE = (0.7, 1.5)  # p10 and p90 against the expected value
_SEVERAL_NODES = (0.7, 2.5)  # DeepSpeed across nodes was off by up to that
_CPU = (0.4, 2.5)


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step: the expected value and an 80 % interval (p10 to p90)."""

    seconds: float
    low: float
    high: float
    compute: float  # of it, were the network infinitely fast
    network: float  # of it, were the GPUs infinitely fast


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one optimizer step asks of every process."""

    arch: Architecture
    zero_stage: int
    micro_batch: int
    accumulation: int
    tokens_per_sequence: int
    lora_rank: int | None
    checkpointing: bool
    precision: str
    method: Method = "supervised"

    @property
    def micro_tokens(self) -> int:
        """Tokens of one micro-step."""
        return self.micro_batch * self.tokens_per_sequence * METHODS[self.method].sequences

    @property
    def reference(self) -> bool:
        """True when a frozen model scores every sequence as well."""
        return METHODS[self.method].reference

    @property
    def trained(self) -> int:
        """Parameters that have a gradient."""
        rank = self.lora_rank
        return self.arch.parameters if rank is None else self.arch.lora_parameters(rank)

    @property
    def width(self) -> int:
        """Bytes of one weight."""
        return 2 if self.precision == "bf16" else 4


def gpu_step(work: Work, sku: Sku, *, nodes: int, processes_per_node: int) -> StepTime:
    """A step on GPUs of this VM size."""
    launches = work.arch.layers * _LAUNCH_SECONDS * (1 + _FORWARD * work.reference)
    micro_step = max(_flops(work) / _gpu_flops(work, sku), launches)
    compute = work.accumulation * micro_step
    world = nodes * processes_per_node
    link = _link_bytes(sku, nodes, processes_per_node)
    network = _network_bytes(work) * (world - 1) / world / link
    seconds = max(compute, network) + (1 - _OVERLAP) * min(compute, network)
    low, high = _ONE_NODE if nodes == 1 else _SEVERAL_NODES
    return StepTime(
        seconds=seconds,
        low=low * seconds,
        high=high * seconds,
        compute=compute,
        network=network,
    )


def cpu_step(work: Work, *, flops: float) -> StepTime:
    """A step on CPU processes that do ``flops`` floating-point operations per second each."""
    seconds = work.accumulation * _flops(work) / flops
    low, high = _CPU
    return StepTime(
        seconds=seconds, low=low * seconds, high=high * seconds, compute=seconds, network=0.0
    )


def _flops(work: Work) -> float:
    """Of one micro-step on one process: 2 per weight and token forward, 4 backward."""
    arch = work.arch
    weights = 6 if work.lora_rank is None else 4  # frozen weights need no gradient of their own
    more = work.checkpointing + work.reference  # forward passes: once again, and the reference's
    weights += 2 * more
    attention = 12.0 * arch.layers * arch.q_size * work.tokens_per_sequence
    attention *= 1 + _FORWARD * more
    adapters = 0 if work.lora_rank is None else 6 * work.trained
    return work.micro_tokens * (weights * arch.parameters + adapters + attention)


def _gpu_flops(work: Work, sku: Sku) -> float:
    """What one GPU reaches; narrow models fill it less, fp32 runs at half of bf16 (TF32)."""
    share, half = _EFFICIENCY.get(sku.gpu.split("-")[0], _UNKNOWN_GPU)
    width = work.arch.hidden_size
    peak = sku.bf16_tflops * 1e12 * (2 / work.width)
    return _STACK * share * width / (width + half) * peak


def _network_bytes(work: Work) -> int:
    """What one process sends in an optimizer step, by ZeRO stage."""
    trained = work.trained * work.width
    if work.zero_stage == 3:  # weights gathered for every pass, gradients reduced
        passes = 3 if work.reference else 2  # the reference's is forward only
        return work.accumulation * (passes * work.arch.parameters * work.width + trained)
    reductions = work.accumulation if work.zero_stage == 2 else 1
    return reductions * trained + trained


def _link_bytes(sku: Sku, nodes: int, processes_per_node: int) -> float:
    """Bytes per second and process over the slowest link in the way."""
    if nodes == 1:
        return sku.nvlink_gbytes * 1e9
    gbits = sku.infiniband_gbps or sku.ethernet_gbps / processes_per_node
    return gbits / 8 * 1e9 * _LINE_RATE
