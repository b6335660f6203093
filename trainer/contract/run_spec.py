"""The run spec: what to train, written once per job. Standard library only.

Part of the contract: import it from `trainer.contract`.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Self

from trainer.contract.bounds import Bytes, CountBound, Name, TextBound
from trainer.contract.head import CHECKPOINTS_KEPT, MOST_FILES, Retention
from trainer.contract.wire import LATER, Message

_SINGLE = ("supervised", "classification")  # methods whose rows are one sequence


@dataclass(frozen=True, kw_only=True)
class InputFile(Message):
    """A blob that nodes read: its "container/blob name" is its key in Grants.inputs."""

    path: Annotated[str, TextBound(2048)]
    size: Bytes
    sha256: Name  # empty where only another sum is known
    crc64nvme: Name = field(default="", metadata=LATER)  # of a job's model, from its manifest

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, kw_only=True)
class StartingCheckpoint(Message):
    """A committed checkpoint of an earlier job, and what is needed to make a model of it."""

    files: tuple[InputFile, ...]  # its manifest and every file that the manifest lists, one folder
    run_spec: InputFile  # the earlier job's


@dataclass(frozen=True, kw_only=True)
class PinnedModel(Message):
    """A base model pinned to a revision and staged into Blob; safetensors only.

    With ``checkpoint`` the files are the base model of the earlier job, and the job begins with the
    model that the checkpoint makes of them: see ConvertedBase.
    """

    name: str
    revision: str
    files: tuple[InputFile, ...]
    checkpoint: StartingCheckpoint | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, kw_only=True)
class ConvertedBase(Message):
    """The model made of a starting checkpoint, once: every attempt reads these files.

    It is the blob CONVERTED_BASE in the job's container, written last and never changed.
    """

    # In the job's container, in one folder below BASE_FOLDER.
    files: Annotated[tuple[InputFile, ...], CountBound(MOST_FILES)]


@dataclass(frozen=True, kw_only=True)
class Lora(Message):
    """Low-rank adapters on every linear layer (peft's "all-linear")."""

    rank: int
    alpha: int
    dropout: float
    quantized: bool = field(default=False, metadata=LATER)  # QLoRA: the frozen base in 4 bits (NF4)


@dataclass(frozen=True, kw_only=True)
class Dpo(Message):
    """Direct preference optimization (Rafailov et al., 2023); the reference is the base model."""

    beta: float  # how dear it is to leave the reference
    loss: str = "sigmoid"  # or "ipo" (Azar et al., 2023)
    label_smoothing: float = 0.0  # share of pairs that are taken to be the wrong way round


@dataclass(frozen=True, kw_only=True)
class Ranked(Message):
    """A reward model of rankings: the required margin rises linearly over the steps."""

    margin_start: float = 0.1  # at the first step
    margin_end: float = 0.5  # at the last one


@dataclass(frozen=True, kw_only=True)
class LossScaling(Message):
    """The factor of fp16 losses, so that small gradients do not become zero."""

    start_power: int = 16  # of two
    window: int = 1000  # steps without an overflow after which it is doubled


@dataclass(frozen=True, kw_only=True)
class SpikeGuard(Message):
    """When a loss counts as a spike, and what follows."""

    on_spike: str = "warn"  # or "stop": the job fails, its checkpoints stay
    factor: float = 3.0  # of the median
    steps: int = 3  # in a row
    window: int = 50  # steps that the median is of


@dataclass(frozen=True, kw_only=True)
class Mix(Message):
    """Short and long rows in a constant proportion."""

    threshold_tokens: int = 512  # a row of more is long; all its sequences together
    short_share: float = 0.7  # of the samples


@dataclass(frozen=True, kw_only=True)
class Curriculum(Message):
    """Easy rows first: few turns, then few tokens."""

    until_step: int  # after this step all rows are used
    start_share: float = 0.2  # of the rows, the easiest, at the first step


@dataclass(frozen=True, kw_only=True)
class Reinforcement(Message):
    """Learning from the grades of the model's own answers.

    grpo: Shao et al., 2024, equation 3, averaged over tokens as DAPO does; rloo: Ahmadian et al.,
    2024; ppo: Schulman et al., 2017, with a critic and the KL penalty in the reward.
    """

    algorithm: str  # "grpo", "rloo" or "ppo"
    grader: str  # OpenAI's grader object, as JSON
    answers: int  # per prompt; grpo and rloo compare them, so at least 2
    max_answer_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    beta: float = 0.0  # how dear it is to leave the base model; 0: no reference is kept
    beta_end: float | None = None  # where a cosine over all steps takes it; None: it stays
    kl_target: float | None = None  # nats per answer: beta is steered towards it (Ziegler 2019)
    clip: float = 0.2  # of the ratio to the policy that gave the answer, and of the value's change
    steps_per_rollout: int = 1  # optimizer steps on the answers of one policy
    gae_lambda: float = 0.95  # ppo
    replay_share: float = 0.0  # of a batch: answers of earlier policies
    replay_capacity: int = 50_000  # answers, all ranks together
    replay_max_age: int = 50  # optimizer steps; older answers are not used again
    at_once: int = field(default=64, metadata=LATER)  # answers that a rank writes side by side

    def on(self, rung: "Rung") -> "Reinforcement":
        """Return the options with at most a micro-batch of the rung's answers at once."""
        return replace(self, at_once=min(self.at_once, rung.micro_batch * self.answers))


@dataclass(frozen=True, kw_only=True)
class Rung(Message):
    """How much a process computes at once: a step of the out-of-memory ladder.

    The rows of a training step are the same on every rung.
    """

    micro_batch: int  # samples per process and micro-step
    gradient_checkpointing: bool


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Message):
    """Options that pass from the request to the trainer unchanged.

    Request (`contract/training.py`), plan and run spec use the same names: add a new option to
    both.
    """

    precision: str = "bf16"  # or "fp16", "fp32"
    gradient_checkpointing: bool = True
    lora: Lora | None = None
    dpo: Dpo | None = field(default=None, metadata=LATER)  # with that method, and no other
    ranked: Ranked | None = field(default=None, metadata=LATER)  # of a reward model; None: of pairs
    reinforcement: Reinforcement | None = field(default=None, metadata=LATER)  # with that method
    method_options: str = field(default="", metadata=LATER)  # of any other method, as JSON
    keep_checkpoints: int = field(default=CHECKPOINTS_KEPT, metadata=LATER)  # the newest
    milestone_every_steps: int = field(default=0, metadata=LATER)  # 0: none
    packing: bool = field(default=False, metadata=LATER)  # sequences side by side, not padded
    mix: Mix | None = field(default=None, metadata=LATER)  # None: rows are only shuffled
    curriculum: Curriculum | None = field(default=None, metadata=LATER)  # the same
    split_answers: bool = field(default=False, metadata=LATER)  # each is a sample of its own
    ema_decay: float = field(default=0.0, metadata=LATER)  # of the trained weights; 0: none kept
    train_last_n_layers: int | None = field(default=None, metadata=LATER)  # None: all
    train_embeddings: bool = field(default=True, metadata=LATER)  # and a head that is tied to them
    loss_chunk: int = field(default=0, metadata=LATER)  # positions with logits at once; 0: all
    offload: str = field(default="", metadata=LATER)  # "optimizer": masters and moments on the host
    # "parameters": also the weights, loaded layer by layer; ZeRO stage 3
    rollout_offload: bool = field(default=False, metadata=LATER)  # the optimizer, while it answers
    zero_plus_plus: tuple[str, ...] = field(default=(), metadata=LATER)  # of "hpz", "qwz", "qgz"
    compiled: bool = field(default=False, metadata=LATER)  # by torch, where it can be
    fused_kernels: bool = field(default=False, metadata=LATER)  # Liger's, where they are
    nccl: tuple[str, ...] = field(default=(), metadata=LATER)  # NAME=VALUE, over those of the size
    spike_guard: SpikeGuard | None = field(default=None, metadata=LATER)  # None: spikes are ignored

    @property
    def options(self) -> dict[str, Any]:
        """These members by name."""
        return {member.name: getattr(self, member.name) for member in fields(TrainingOptions)}

    @property
    def freezes(self) -> bool:
        """Whether a part of the model is frozen, apart from the base below adapters."""
        return self.train_last_n_layers is not None or not self.train_embeddings

    @property
    def is_quantized(self) -> bool:
        """Whether the base model below the adapters is in 4 bits."""
        return self.lora is not None and self.lora.quantized


@dataclass(frozen=True, kw_only=True)
class RunSpec(TrainingOptions):
    """The resolved, immutable recipe of one job, as the trainer gets it."""

    version: int
    job_id: str
    seed: int
    method: str  # a module of trainer.methods
    base_model: PinnedModel
    training_file: InputFile
    validation_file: InputFile | None
    total_steps: int  # optimizer steps of the whole job
    global_batch: int  # samples per optimizer step: rows of the file, whatever the world size
    micro_batch: int  # samples per process and micro-step
    max_seq_len: int  # tokens; longer rows are cut
    learning_rate: float  # peak
    warmup_steps: int
    min_lr_ratio: float  # of the peak, where the cosine ends
    weight_decay: float
    max_grad_norm: float
    zero_stage: int  # 0 to 3; 16 bits need at least 1
    checkpoint_seconds: float  # between periodic saves; a generation may override it
    eval_steps: int  # training steps between validation losses; 0 = only at the end
    nodes: int
    processes_per_node: int
    date: str = "2024-07-26"  # what chat templates get for today; of older specs, Llama's default
    reward_model: PinnedModel | None = field(default=None, metadata=LATER)  # that the grader asks
    answers_per_row: int = field(default=2, metadata=LATER)  # or texts: the most that any has
    labels: tuple[str, ...] = field(default=(), metadata=LATER)  # of a classification, in order
    data_warnings: tuple[str, ...] = field(default=(), metadata=LATER)  # for the report
    loss_scaling: LossScaling | None = field(default=None, metadata=LATER)  # None: defaults
    verify: bool = field(default=False, metadata=LATER)  # the export, in a fresh process

    def on(self, rung: Rung | None) -> Self:
        """Return the spec with the rung's batch size; unchanged for None."""
        if rung is None:
            return self
        return replace(
            self,
            micro_batch=rung.micro_batch,
            gradient_checkpointing=rung.gradient_checkpointing,
            reinforcement=self.reinforcement and self.reinforcement.on(rung),
        )

    @property
    def sequences_per_row(self) -> int:
        """Sequences of a data row: the answers of a preference or ranking, best first; else 1."""
        if self.reinforcement is not None:
            return self.reinforcement.answers
        return 1 if self.method in _SINGLE else self.answers_per_row

    @property
    def has_critic(self) -> bool:
        """Whether a critic is trained with the model."""
        return self.reinforcement is not None and self.reinforcement.algorithm == "ppo"

    @property
    def retention(self) -> Retention:
        """The committed checkpoints to keep."""
        return Retention(newest=self.keep_checkpoints, milestone_every=self.milestone_every_steps)
