"""Members of ``training``: options of the training loop; the planner chooses omitted ones."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from contract.choices import CHECKPOINTS_KEPT, MAX_BATCH, MAX_KEPT
from contract.strict import Strict

# Tuning variables of NCCL's user guide, without those that load a library, name a file or change
# which hosts may connect.
NCCL_NAMES = {
    *("NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_COLLNET_ENABLE", "NCCL_CROSS_NIC", "NCCL_CUMEM_ENABLE"),
    *("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_DISABLE"),
    *("NCCL_IB_HCA", "NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IB_QPS_PER_CONNECTION"),
    *("NCCL_IB_RETRY_CNT", "NCCL_IB_SL", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_TC"),
    *("NCCL_IB_TIMEOUT", "NCCL_IGNORE_CPU_AFFINITY", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS"),
    *("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_NSOCKS_PERTHREAD", "NCCL_NTHREADS"),
    *("NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_PXN_DISABLE"),
    *("NCCL_SHM_DISABLE", "NCCL_SOCKET_NTHREADS"),
}
_NCCL_VALUE = re.compile("[A-Za-z0-9_:;,.=^+-]{1,64}")


class LoraRequest(Strict):
    """Low-rank adapters instead of all parameters; with `qlora` over a base in 4 bits."""

    type: Literal["lora", "qlora"]
    """Kind of adapter."""
    r: int = Field(default=16, ge=1, le=512)
    """Rank of the adapters."""
    alpha: int | None = Field(default=None, ge=1, le=4096)
    """Scale of the adapters; default: twice the rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout probability in the adapters."""


class ScalingRequest(Strict):
    """A learning rate that grows with the batch size."""

    rule: Literal["linear", "square_root"]
    """How the learning rate grows with the batch size."""
    base_batch: int = Field(ge=1, le=MAX_BATCH)
    """Batch size for which the learning rate was tuned."""


class MixRequest(Strict):
    """Short and long rows in a fixed proportion."""

    threshold_tokens: int = Field(default=512, ge=1, le=1_048_576)
    """Tokens from which a row counts as long."""
    short_share: float = Field(default=0.7, gt=0, lt=1)
    """Share of short rows."""


class CurriculumRequest(Strict):
    """Easy rows first."""

    until_step: int = Field(ge=1)
    """Last step of the curriculum; any row may come after it."""
    start_share: float = Field(default=0.2, gt=0, le=1)
    """Share of the rows, the easiest, that the first step draws from."""


class TrainingRequest(Strict):
    """How the training is done."""

    adapter: LoraRequest | None = None
    """Adapters to train; default: all parameters."""
    max_seq_len: int | None = Field(default=None, ge=16, le=1_048_576)
    """Tokens at which a sequence is cut off."""
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    """Number format of the computation; default: bf16 on GPUs, fp32 on CPUs."""
    gradient_checkpointing: bool = True
    """Compute activations again in the backward pass, to save memory."""
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    """DeepSpeed's ZeRO stage."""
    micro_batch: int | None = Field(default=None, ge=1, le=MAX_BATCH)
    """Examples per process and forward pass."""
    learning_rate: float | None = Field(default=None, gt=0, lt=1)
    """Peak learning rate before the multiplier, for example 1e-5."""
    checkpoint_seconds: float | None = Field(default=None, ge=1, le=86_400)
    """Seconds between two checkpoints; default: as often as pays."""
    eval_steps: int | None = Field(default=None, ge=0)
    """Steps between two validation losses; 0: only at the end."""
    keep_checkpoints: int = Field(default=CHECKPOINTS_KEPT, ge=1, le=MAX_KEPT)
    """Number of newest checkpoints to keep, beside the best and milestones."""
    milestone_every_steps: int = Field(default=0, ge=0)
    """Steps between two milestones, checkpoints that are kept permanently; 0: none."""
    packing: bool = False
    """Put sequences side by side instead of padding them."""
    mix: MixRequest | None = None
    """Short and long rows in a fixed proportion."""
    curriculum: CurriculumRequest | None = None
    """Easy rows first."""
    train_last_n_layers: int | None = Field(default=None, ge=1)
    """Number of last layers to train; default: all. Not with an adapter."""
    train_embeddings: bool = True
    """Train the embeddings too. Always with an adapter left out."""
    loss_chunk: int = Field(default=0, ge=0)
    """Positions whose logits exist at once; 0: all."""
    offload: Literal["", "optimizer", "parameters"] = ""
    """Offload to the host's memory: optimizer or parameters."""
    ema_decay: float = Field(default=0.0, ge=0, lt=1)
    """Decay of an exponential moving average of the weights, which is exported; 0: none."""
    on_spike: Literal["", "warn", "stop"] = ""
    """On a loss spike (3 times the median for 3 steps): warn or stop."""
    compiled: bool = False
    """Compile the model with torch."""
    fused_kernels: bool = False
    """Use Liger's fused kernels."""
    zero_plus_plus: tuple[Literal["hpz", "qwz", "qgz"], ...] = Field(default=(), strict=False)
    """Parts of ZeRO++; with ZeRO stage 3."""
    nccl: tuple[Annotated[str, Field(max_length=128)], ...] = Field(
        default=(), max_length=32, strict=False
    )
    """NCCL settings as NAME=VALUE, over those that suit the VM size."""
    rollout_offload: bool = False
    """Move the optimizer to the host while answers are written; reinforcement only."""
    verify: bool = True
    """Verify the exported model in a fresh process before the job succeeds."""
    learning_rate_scaling: ScalingRequest | None = None
    """Let the learning rate grow with the batch size."""
    tensor_parallel: int = 1
    """Must be 1: layers are not split over GPUs."""
    sequence_parallel: int = 1
    """Must be 1: sequences are not split over GPUs."""

    @field_validator("nccl")
    @classmethod
    def refuse_other_variables(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Reject variables other than NCCL tuning; ranks get no other variable of a request."""
        for name, equals, setting in (pair.partition("=") for pair in value):
            if name not in NCCL_NAMES or not equals or not _NCCL_VALUE.fullmatch(setting):
                raise PydanticCustomError(
                    "unsupported",
                    "{pair} cannot be set: write NAME=VALUE, the value of letters, digits and "
                    "_:;,.=^+-, with one of {names}",
                    {"pair": repr(name), "names": ", ".join(sorted(NCCL_NAMES))},
                )
        return value

    @field_validator("tensor_parallel", "sequence_parallel")
    @classmethod
    def refuse_splits(cls, value: int) -> int:
        """Reject parallelism whose state the trainer cannot save exactly."""
        if value != 1:
            raise PydanticCustomError(
                "unsupported",
                "neither layers nor sequences are split over GPUs: leave it out, and use "
                "training.zero_stage 3 for a model that is too large for one",
            )
        return value
