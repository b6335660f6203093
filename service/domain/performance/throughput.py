"""Estimate the time of an optimizer step: a roofline of compute, memory, network and launches.

Before anything is measured it comes with a wide interval; measurements of jobs narrow it
(`service/domain/performance/calibration.py`). Formulas, sources and errors: docs/planning.md.
"""

from dataclasses import dataclass

from contract.methods import METHODS, Method
from service.domain.models.architecture import Architecture
from service.domain.models.trained_parameters import trained_parameters
from service.domain.performance.efficiency import HUGGING_FACE, GpuEfficiency, TrainingStack
from service.domain.performance.rollout_time import Rollout, cpu_seconds, gpu_seconds
from service.domain.performance.vm_catalogue import Sku
from service.domain.training.methods import keeps_reference, models_trained
from service.domain.training.reinforcement import (
    expected_tokens,
    forward_passes,
    parallel_answers,
    trained_per_answer,
)
from trainer.contract import TrainingOptions

TRAINER_STACK = HUGGING_FACE
_UNKNOWN_GPU = GpuEfficiency(share=0.5, width=800, attention=0.15)
_HOST_ADAM_SECONDS = 1.4e-9  # per parameter on a machine's cores: Ren et al. (2021), table 4
_HOST_LINK = 15e9  # bytes per second and GPU from host memory, all at once; assumed, as for copies
_FORWARD = 1 / 3  # of a forward and a backward pass; checkpointing repeats it
_CAUSAL = 0.5  # of all pairs of tokens: a token looks back only
_SHARPNESS = 4  # how sharply the longer of launches and compute wins; where they meet both count

_COMPUTE = (0.7, 1.5)  # p10 and p90 against the expected value; links inside a machine as well
_NETWORK = (0.7, 2.5)  # DeepSpeed across nodes was off by up to that
_UNKNOWN_INTERVAL = (0.5, 4.0)
_CPU = (0.4, 2.5)
CPU_STEP = 0.1  # seconds that even a step of the tiny model takes
_ROLLOUT = (0.4, 3.0)  # the length of answers is unknown: from a few tokens to twice the estimate


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step: the expected value and an 80 % interval (P10 to P90)."""

    seconds: float
    low: float
    high: float
    compute: float  # of it, were the network infinitely fast
    network: float  # of it, were the GPUs infinitely fast
    doubt: str = ""  # why it is uncertain; empty where it is not
    roofline: float = 0.0  # the seconds before past jobs were asked; 0: they were not


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """The work of one optimizer step for every process."""

    arch: Architecture
    zero_stage: int
    micro_batch: int
    accumulation: int
    tokens_per_sequence: int
    options: TrainingOptions
    method: Method = "supervised"
    sequences: int | None = None  # of a sample; None: as many as the method says
    judge: int = 0  # parameters of the reward model that grades

    @property
    def micro_tokens(self) -> int:
        """Return the tokens of one micro-step."""
        sequences = self.sequences or METHODS[self.method].sequences
        tokens = self.micro_batch * self.tokens_per_sequence * sequences
        reinforcement = self.options.reinforcement
        return round(tokens * trained_per_answer(reinforcement)) if reinforcement else tokens

    @property
    def reference(self) -> bool:
        """Return whether a frozen model scores every sequence as well."""
        return keeps_reference(self.method, self.options.reinforcement)

    @property
    def trained(self) -> int:
        """Return the parameters with a gradient."""
        return trained_parameters(self.arch, self.options)

    @property
    def models(self) -> int:
        """Return the number of models trained side by side."""
        return models_trained(self.options.reinforcement)

    @property
    def rollout(self) -> Rollout | None:
        """Return the answers to generate first, if any."""
        reinforcement = self.options.reinforcement
        if reinforcement is None:
            return None
        answer, steps = expected_tokens(reinforcement), reinforcement.steps_per_rollout
        written = steps * self.accumulation * self.micro_batch * reinforcement.answers
        several = min(parallel_answers(reinforcement, self.micro_batch), written)
        return Rollout(
            arch=self.arch,
            width=self.width,
            batches=-(-written // several) / steps,
            sequences=several,
            prompt_tokens=max(self.tokens_per_sequence - answer, 1),
            answer_tokens=answer,
        )

    @property
    def width(self) -> int:
        """Return the bytes of one weight."""
        return 4 if self.options.precision == "fp32" else 2


def gpu_step(
    work: StepWork,
    sku: Sku,
    *,
    nodes: int,
    processes_per_node: int,
    stack: TrainingStack = TRAINER_STACK,
) -> StepTime:
    """Return the time of a step on GPUs of this VM size."""
    speed = stack.speeds.get(sku.family, _UNKNOWN_GPU)
    compute = work.accumulation * _micro_step(work, sku, stack, speed) + _host_update(work) / nodes
    world = nodes * processes_per_node
    link = _link_bytes(sku, nodes, processes_per_node, stack)
    network = _network_bytes(work) * (world - 1) / world / link + _fetching(work) / world
    seconds = _combined_seconds(compute, network, stack)
    doubt = _doubt(sku, stack, bound=nodes > 1 and network > compute)
    low, high = _UNKNOWN_INTERVAL if doubt else _interval(compute, network, stack, nodes)
    if rollout := work.rollout:
        gathered = rollout.weights if work.zero_stage == 3 else 0
        writing = gpu_seconds(
            rollout,
            bandwidth=sku.memory_gbytes * 1e9,
            flops=_weight_rate(work, sku, speed),
            gathering=gathered * (world - 1) / world / link,
        )
        compute, seconds = compute + writing, seconds + writing
        low, high = _ROLLOUT
    return StepTime(
        seconds=seconds,
        low=low * seconds,
        high=high * seconds,
        compute=compute,
        network=network,
        doubt=doubt,
    )


def _combined_seconds(compute: float, network: float, stack: TrainingStack) -> float:
    """Return seconds of both, with a share of the shorter hidden behind the longer."""
    return max(compute, network) + (1 - stack.overlap) * min(compute, network)


def _interval(
    compute: float, network: float, stack: TrainingStack, nodes: int
) -> tuple[float, float]:
    """Return P10 and P90 relative to the expected value; one machine's links are surer."""
    links = _COMPUTE if nodes == 1 else _NETWORK
    expected = _combined_seconds(compute, network, stack)
    low, high = (
        _combined_seconds(c * compute, n * network, stack) / expected
        for c, n in zip(_COMPUTE, links, strict=True)
    )
    return low, high


def _doubt(sku: Sku, stack: TrainingStack, *, bound: bool) -> str:
    """Return why the step time is uncertain before measurements; empty if it is not."""
    if sku.family not in stack.speeds:
        return (
            f"The step time on {sku.gpu} is uncertain: no training was measured on this GPU. "
            "The first 50 steps will show it."
        )
    if bound:
        return (
            "The step time is uncertain: a step waits for the network between the machines "
            "longer than it computes. A larger micro_batch, fewer nodes, or LoRA would help; the "
            "first 50 steps will show it."
        )
    return ""


def cpu_step(work: StepWork, *, flops: float) -> StepTime:
    """Return the time of a step on CPU processes with ``flops`` FLOP/s each."""
    seconds = CPU_STEP + work.accumulation * (_weight_flops(work) + _attention_flops(work)) / flops
    if rollout := work.rollout:
        seconds += cpu_seconds(rollout, flops=flops)
    low, high = _CPU
    return StepTime(
        seconds=seconds, low=low * seconds, high=high * seconds, compute=seconds, network=0.0
    )


def _micro_step(work: StepWork, sku: Sku, stack: TrainingStack, speed: GpuEfficiency) -> float:
    """Return seconds of one micro-step's forward and backward pass, without network."""
    peak = _peak(work, sku)
    compute = _weight_flops(work) / _weight_rate(work, sku, speed)
    compute += _CAUSAL * _attention_flops(work) / (speed.attention * peak)
    compute += _adapter_bytes(work, stack) / (sku.memory_gbytes * 1e9)
    passes = 2 + work.options.gradient_checkpointing + work.reference
    unpacking = (
        passes * work.arch.linear_parameters * stack.unpack if work.options.is_quantized else 0.0
    )
    launches = work.arch.layers * _launch(work, stack) * (1 + _FORWARD * work.reference)
    return float(((compute + unpacking) ** _SHARPNESS + launches**_SHARPNESS) ** (1 / _SHARPNESS))


def _launch(work: StepWork, stack: TrainingStack) -> float:
    if work.options.is_quantized:
        return stack.launch_quantized
    return stack.launch_sharded if work.zero_stage == 3 else stack.launch


def _extra_passes(work: StepWork) -> int:
    """Return the forward passes beside the trained one.

    Recomputation, the reference, and scoring of answers before training.
    """
    reinforcement = work.options.reinforcement
    before = forward_passes(reinforcement) if reinforcement else 0
    return work.options.gradient_checkpointing + work.reference + before


def _weight_flops(work: StepWork) -> float:
    """Return FLOPs of one micro-step: 2 per weight and token forward, 4 backward."""
    weights = 4 + 2 * _extra_passes(work)  # frozen ones need no gradient of their own
    own = 2 * _trained_matrices(work) if work.options.lora is None else 6 * work.trained
    per_token = weights * work.arch.matrix_parameters + own
    return work.models * work.micro_tokens * per_token + _judging(work)


def _fetching(work: StepWork) -> float:
    """Return seconds of loading offloaded weights, as if all belonged to one process."""
    if work.options.offload != "parameters":
        return 0.0
    weights = work.models * work.arch.parameters * work.width
    return work.accumulation * (2 + work.options.gradient_checkpointing) * weights / _HOST_LINK


def _trained_matrices(work: StepWork) -> int:
    """Return trained parameters whose gradients are matrix products."""
    looked_up = work.options.train_embeddings and not work.arch.tied
    return work.trained - (work.arch.embedding_parameters if looked_up else 0)


def _attention_flops(work: StepWork) -> float:
    """Return FLOPs of attention between all pairs: 4 per pair and width, 8 backward."""
    per_token = 12.0 * work.arch.layers * work.arch.q_size * work.tokens_per_sequence
    return work.models * work.micro_tokens * per_token * (1 + _FORWARD * _extra_passes(work))


def _adapter_bytes(work: StepWork, stack: TrainingStack) -> float:
    """Return bytes that the inputs of adapted layers cost beside the adapters' products."""
    if work.options.lora is None:
        return 0.0
    inputs = sum(i for i, _ in work.arch.linear_layers())
    return work.models * work.micro_tokens * work.arch.layers * inputs * stack.adapters


def _judging(work: StepWork) -> float:
    """Return FLOPs of the reward model, which reads every new answer with its prompt once."""
    settings = work.options.reinforcement
    return 2.0 * work.judge * work.micro_tokens / trained_per_answer(settings) if settings else 0.0


def _host_update(work: StepWork) -> float:
    """Return seconds of AdamW for all parameters on one machine's cores."""
    return work.trained * _HOST_ADAM_SECONDS if work.options.offload else 0.0


def _peak(work: StepWork, sku: Sku) -> float:
    """Return the FLOP/s of one GPU; fp32 runs at half of bf16 (TF32)."""
    return sku.bf16_tflops * 1e12 * (2 / work.width)


def _weight_rate(work: StepWork, sku: Sku, speed: GpuEfficiency) -> float:
    """Return the FLOP/s that one GPU reaches with weights; narrow models reach less."""
    width = work.arch.hidden_size
    return speed.share * width / (width + speed.width) * _peak(work, sku)


def _network_bytes(work: StepWork) -> int:
    """Return the bytes that one process sends in an optimizer step, by ZeRO stage."""
    trained = work.models * work.trained * work.width
    if work.zero_stage == 3:  # weights gathered for every pass, gradients reduced
        passes = 3 if work.reference else 2  # the reference's is forward only
        gathered = passes * work.models * work.arch.parameters * work.width
        return work.accumulation * (gathered + trained)
    reductions = work.accumulation if work.zero_stage == 2 else 1
    return reductions * trained + trained


def _link_bytes(sku: Sku, nodes: int, processes_per_node: int, stack: TrainingStack) -> float:
    """Return bytes per second and process over the slowest link."""
    if nodes == 1:
        return sku.nvlink_gbytes * 1e9 * stack.local
    if sku.infiniband:
        return sku.infiniband_gbps / 8 * 1e9 * stack.share_of_fabric(nodes)
    return sku.ethernet_gbps / processes_per_node / 8 * 1e9 * stack.fabric
