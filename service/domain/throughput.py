"""How long an optimizer step takes: a roofline of compute, network and kernel launches.

Not calibrated on the job itself, so it comes with a wide interval; the measured steps of a
running job replace it. Fitted to published speeds: MosaicML's llm-foundry benchmarks for the
matrix units, QwenLM's README for what Hugging Face models reach of that and for launches,
DeepSpeed's multi-node ZeRO-3 runs for the network.
"""

from dataclasses import dataclass

from service.domain.architecture import Architecture
from service.domain.catalogue import Sku
from service.domain.method import METHODS, Method, keeps_reference, models_trained
from service.domain.reinforcement import at_once, expected_tokens, passes, with_replay
from service.domain.rollout import Rollout, cpu_seconds, gpu_seconds
from service.domain.savings import NONE, Savings, trained_parameters
from trainer.contract import Reinforcement

_STACK = 0.8  # Hugging Face models under DeepSpeed against a training stack tuned by hand
_EFFICIENCY = {"A100": (0.72, 400), "H100": (0.56, 800)}  # share of the peak; width of half of it
_UNKNOWN_GPU = (0.5, 800)
_LAUNCH_SECONDS = 0.0064  # per layer and micro-step, forward and backward: kernels never go faster
_LINE_RATE = 0.64  # of InfiniBand and Ethernet that collectives reach across nodes
_OVERLAP = 0.7  # of the shorter of compute and network that hides behind the longer
_HOST_ADAM_SECONDS = 1.4e-9  # per parameter on a machine's cores: Ren et al. (2021), table 4
_UNPACK_SECONDS = 1e-11  # per weight and pass: Qwen's Q-LoRA against its LoRA, A100
_FORWARD = 1 / 3  # of a forward and a backward pass; checkpointing runs it once more

_ONE_NODE = (0.7, 1.5)  # p10 and p90 against the expected value
_SEVERAL_NODES = (0.7, 2.5)  # DeepSpeed across nodes was off by up to that
_CPU = (0.4, 2.5)
_ROLLOUT = (0.4, 3.0)  # nobody knows how long answers will be, from a few tokens to twice as many


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
    sequences: int | None = None  # of a sample; None: as many as the method says
    quantized: bool = False  # the base, below adapters
    savings: Savings = NONE
    reinforcement: Reinforcement | None = None
    judge: int = 0  # parameters of the reward model that grades

    @property
    def micro_tokens(self) -> int:
        """Tokens of one micro-step."""
        sequences = self.sequences or METHODS[self.method].sequences
        tokens = self.micro_batch * self.tokens_per_sequence * sequences
        return round(tokens * with_replay(self.reinforcement)) if self.reinforcement else tokens

    @property
    def reference(self) -> bool:
        """True when a frozen model scores every sequence as well."""
        return keeps_reference(self.method, self.reinforcement)

    @property
    def trained(self) -> int:
        """Parameters that have a gradient."""
        rank = self.lora_rank
        if rank is not None:
            return self.arch.lora_parameters(rank)
        return trained_parameters(self.arch, None, self.savings)

    @property
    def models(self) -> int:
        """That are trained side by side."""
        return models_trained(self.reinforcement)

    @property
    def rollout(self) -> Rollout | None:
        """The answers that are written first, if any are."""
        asked = self.reinforcement
        if asked is None:
            return None
        answer, steps = expected_tokens(asked), asked.steps_per_rollout
        written = steps * self.accumulation * self.micro_batch * asked.answers
        several = min(at_once(asked, self.micro_batch), written)
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
        """Bytes of one weight."""
        return 2 if self.precision == "bf16" else 4


def gpu_step(work: Work, sku: Sku, *, nodes: int, processes_per_node: int) -> StepTime:
    """A step on GPUs of this VM size."""
    launches = work.arch.layers * _LAUNCH_SECONDS * (1 + _FORWARD * work.reference)
    micro_step = max(_flops(work) / _gpu_flops(work, sku), launches) + _unpacking(work)
    compute = work.accumulation * micro_step + _host_update(work) / nodes
    world = nodes * processes_per_node
    link = _link_bytes(sku, nodes, processes_per_node)
    network = _network_bytes(work) * (world - 1) / world / link
    seconds = max(compute, network) + (1 - _OVERLAP) * min(compute, network)
    low, high = _ONE_NODE if nodes == 1 else _SEVERAL_NODES
    if rollout := work.rollout:
        gathered = rollout.weights if work.zero_stage == 3 else 0
        writing = gpu_seconds(
            rollout,
            bandwidth=sku.memory_gbytes * 1e9,
            flops=_gpu_flops(work, sku),
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
    )


def cpu_step(work: Work, *, flops: float) -> StepTime:
    """A step on CPU processes that do ``flops`` floating-point operations per second each."""
    seconds = work.accumulation * _flops(work) / flops
    if rollout := work.rollout:
        seconds += cpu_seconds(rollout, flops=flops)
    low, high = _CPU
    return StepTime(
        seconds=seconds, low=low * seconds, high=high * seconds, compute=seconds, network=0.0
    )


def _flops(work: Work) -> float:
    """Of one micro-step on one process: 2 per weight and token forward, 4 backward."""
    arch = work.arch
    # Forward passes: once again, the reference's, and what is asked of answers before.
    before = passes(work.reinforcement) if work.reinforcement else 0
    more = work.checkpointing + work.reference + before
    weights = 4 + 2 * more  # frozen ones need no gradient of their own
    attention = 12.0 * arch.layers * arch.q_size * work.tokens_per_sequence
    attention *= 1 + _FORWARD * more
    own = 2 * work.trained if work.lora_rank is None else 6 * work.trained
    learnt = work.models * work.micro_tokens * (weights * arch.parameters + own + attention)
    return learnt + _judging(work)


def _judging(work: Work) -> float:
    """The reward model reads every new answer with its prompt once."""
    asked = work.reinforcement
    return 2.0 * work.judge * work.micro_tokens / with_replay(asked) if asked else 0.0


def _host_update(work: Work) -> float:
    """Seconds that one machine's cores would take for all of torch's AdamW."""
    return work.trained * _HOST_ADAM_SECONDS if work.savings.offload else 0.0


def _unpacking(work: Work) -> float:
    """Seconds of a micro-step in which weights in 4 bits are made what they stand for."""
    passes = 2 + work.checkpointing + work.reference
    return passes * work.arch.linear_parameters * _UNPACK_SECONDS if work.quantized else 0.0


def _gpu_flops(work: Work, sku: Sku) -> float:
    """What one GPU reaches; narrow models fill it less, fp32 runs at half of bf16 (TF32)."""
    share, half = _EFFICIENCY.get(sku.gpu.split("-")[0], _UNKNOWN_GPU)
    width = work.arch.hidden_size
    peak = sku.bf16_tflops * 1e12 * (2 / work.width)
    return _STACK * share * width / (width + half) * peak


def _network_bytes(work: Work) -> int:
    """What one process sends in an optimizer step, by ZeRO stage."""
    trained = work.models * work.trained * work.width
    if work.zero_stage == 3:  # weights gathered for every pass, gradients reduced
        passes = 3 if work.reference else 2  # the reference's is forward only
        gathered = passes * work.models * work.arch.parameters * work.width
        return work.accumulation * (gathered + trained)
    reductions = work.accumulation if work.zero_stage == 2 else 1
    return reductions * trained + trained


def _link_bytes(sku: Sku, nodes: int, processes_per_node: int) -> float:
    """Bytes per second and process over the slowest link in the way."""
    if nodes == 1:
        return sku.nvlink_gbytes * 1e9
    gbits = sku.infiniband_gbps or sku.ethernet_gbps / processes_per_node
    return gbits / 8 * 1e9 * _LINE_RATE
