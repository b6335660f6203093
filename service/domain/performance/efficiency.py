"""Define how efficiently training programs use machines: coefficients and their sources.

Each was fitted to published speeds of that program, on the logarithm of the step time, by
`bench.planner`, which measures the errors, also on points that a fit had not seen. A coefficient is
a property of programs and hardware; none belongs to a single model or run.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

FEW_NODES: Final = 16  # the most that speeds of few machines were published of
MANY_NODES: Final = 48  # the fewest that DeepSpeed's ZeRO-3 over many machines was published of


@dataclass(frozen=True, kw_only=True)
class GpuEfficiency:
    """The efficiency of a program on one family of GPUs."""

    share: float  # of the peak, by products with the weights of an infinitely wide model
    width: float  # hidden size at which half of that is reached
    attention: float  # share of the peak, by products of queries, keys and values (causal half)


@dataclass(frozen=True, kw_only=True)
class TrainingStack:
    """A training program as the roofline models it."""

    name: str
    speeds: Mapping[str, GpuEfficiency]  # by family of GPUs, as `Sku.family` has it
    launch: float  # seconds of a layer's kernels in a micro-step: they never go faster
    launch_sharded: float  # the same with ZeRO-3, which stops at every layer to gather it
    launch_quantized: float  # the same over a base in 4 bits
    adapters: float  # bytes moved per token and input of an adapted layer: casts and dropout
    unpack: float  # seconds per weight in 4 bits and pass
    local: float  # share of the links inside a machine that collectives reach
    fabric: float  # share of the links between machines
    overlap: float  # of the shorter of compute and network that hides behind the longer
    fabric_few: float | None = None  # the same between few machines by InfiniBand; None: as fabric

    def share_of_fabric(self, nodes: int) -> float:
        """Return the share of the InfiniBand links that collectives of this many machines reach.

        Few and many machines were measured apart. Between them it falls evenly on logarithms.
        """
        few = self.fabric_few or self.fabric
        if nodes <= FEW_NODES:
            return few
        done = math.log(min(nodes, MANY_NODES) / FEW_NODES) / math.log(MANY_NODES / FEW_NODES)
        return float(few * (self.fabric / few) ** done)


# QwenLM/Qwen's README, "Profiling of Memory and Speed": full, LoRA and Q-LoRA fine-tuning of 1.8
# to 72 billion parameters on A100-80GB. Width and attention cannot be separated there from what
# adapters move: the width is llm-foundry's, attention that of FlashAttention-2 (Dao, 2023). The
# fabric is that of DeepSpeed's ZeRO-3 over 48 to 280 machines in Narayanan et al. (2021), table 2.
# Over 2 to 16 machines no figures of DeepSpeed are published: assumed to move as much as
# llm-foundry does (43 of its runs, fitted with this overlap), as both leave it to NCCL. What this
# program reaches of an H100 is not published: assumed to gain what llm-foundry gained.
HUGGING_FACE: Final = TrainingStack(
    name="Hugging Face models under DeepSpeed",
    speeds={
        "A100": GpuEfficiency(share=0.85, width=800, attention=0.6),
        "H100": GpuEfficiency(share=0.72, width=1200, attention=0.34),
    },
    launch=0.0052,
    launch_sharded=0.0117,
    launch_quantized=0.0072,
    adapters=180,
    unpack=1.2e-11,
    local=0.32,
    fabric=0.64,
    overlap=0.7,
    fabric_few=2.5,
)

# MosaicML's llm-foundry, scripts/train/benchmarking: pre-training with PyTorch's FSDP, with
# attention that does not leave out the pairs that are masked. A ring between machines uses all
# their adapters, so that a share of one may be above 1.
LLM_FOUNDRY: Final = TrainingStack(
    name="llm-foundry's FSDP",
    speeds={
        "A100": GpuEfficiency(share=0.82, width=830, attention=0.29),
        "H100": GpuEfficiency(share=0.69, width=1240, attention=0.16),
    },
    launch=0.0095,
    launch_sharded=0.0095,
    launch_quantized=0.0095,
    adapters=180,
    unpack=1.2e-11,
    local=0.18,
    fabric=1.8,
    overlap=0.9,
)

# A program of which nothing is known: between those that were tuned by hand and Megatron's of
# 2021, whose runs over 384 GPUs and more reached half of the peak (Narayanan et al., table 2). Its
# collectives are those of PyTorch's FSDP, or of DeepSpeed's ZeRO where it is known to use that.
UNMEASURED: Final = replace(
    LLM_FOUNDRY,
    name="a training program that was never measured",
    speeds={
        "A100": GpuEfficiency(share=0.66, width=800, attention=0.3),
        "H100": GpuEfficiency(share=0.56, width=1200, attention=0.17),
    },
)
UNMEASURED_ZERO: Final = replace(
    UNMEASURED,
    name="a training program that was never measured, with DeepSpeed's ZeRO",
    local=HUGGING_FACE.local,
    fabric=HUGGING_FACE.fabric,
    overlap=HUGGING_FACE.overlap,
    fabric_few=HUGGING_FACE.fabric_few,
)
