"""What service and nodes agree on: every message, every blob path. Standard library only.

The service imports this module and nothing else of the trainer. `docs/contract.md`
says what each side does when the other is silent, late, doubled or stale.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from trainer.wire import Message as Message  # noqa: PLC0414 - it is part of the contract

PROTOCOL = 2
OLDEST_PROTOCOL = 1  # that the service still understands: its nodes tell of no troubles
HEARTBEAT_SECONDS = 10.0  # and at once on any change
LONG_POLL_SECONDS = 20.0
LOG_FLUSH_SECONDS = 2.0
ERROR_TAIL_BYTES = 64 * 1024
CHECKPOINTS_KEPT = 3  # named by HEAD; older ones are dropped from it and then deleted

HEAD = "HEAD"
MANIFEST = "manifest.json"
RUN_SPEC = "run-spec.json"
MEASURED = "measured.jsonl"  # beside a manifest: StepMetrics that the service had not answered yet


def checkpoint_path(step: int, nonce: str) -> str:
    """Folder of one checkpoint in the job's container; each generation has a nonce of its own."""
    return f"checkpoints/step-{step:08d}-{nonce}"


def model_path(step: int, nonce: str) -> str:
    """Folder of the final model in the job's container."""
    return f"models/step-{step:08d}-{nonce}"


def log_path(attempt_id: str, rank: int) -> str:
    """The append blob that holds what one rank printed during one attempt."""
    return f"logs/{attempt_id}/rank-{rank:05d}.log"


class StaleGeneration(Exception):
    """HEAD belongs to a newer generation: stop, and commit nothing."""


# --- Blob: the truth about checkpoints ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FileEntry(Message):
    """One file of a checkpoint or model as it lies in Blob."""

    name: str
    size: int
    etag: str
    crc64nvme: str  # 16 hex digits, of the whole file


@dataclass(frozen=True, kw_only=True)
class Manifest(Message):
    """Every data file of one checkpoint (or model), without the ranks' records. Written once."""

    step: int
    consumed_samples: int
    world_size: int
    generation: int
    kind: str  # "periodic", "stop" or "final"
    files: tuple[FileEntry, ...]
    run_spec_sha256: str
    saved_at: float
    parameters_sha256: str = ""  # final models only

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(f.size for f in self.files)


@dataclass(frozen=True, kw_only=True)
class Committed(Message):
    """What HEAD says of one committed checkpoint or of the final model."""

    path: str
    step: int
    consumed_samples: int
    world_size: int
    generation: int
    kind: str
    size: int
    manifest_sha256: str
    committed_at: float
    parameters_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class Head(Message):
    """The one blob that says which checkpoints exist and which generation may add to them.

    Every write is a compare-and-swap on the ETag that was read (If-Match), so of two
    writers one loses and must read again.
    """

    generation: int
    checkpoints: tuple[Committed, ...] = ()  # oldest first
    model: Committed | None = None

    @property
    def newest(self) -> Committed | None:
        """The checkpoint that the next generation loads."""
        return self.checkpoints[-1] if self.checkpoints else None

    def fenced(self, number: int) -> "Head":
        """HEAD taken by generation ``number``; from then on no older one can commit.

        Raises StaleGeneration when a newer generation has it already.
        """
        if number < self.generation:
            raise StaleGeneration(f"generation {number} came after {self.generation}")
        return replace(self, generation=number)

    def with_checkpoint(self, entry: Committed) -> "Head":
        """HEAD with one more committed checkpoint, the oldest dropped beyond CHECKPOINTS_KEPT."""
        self._admit(entry)
        return replace(self, checkpoints=(*self.checkpoints, entry)[-CHECKPOINTS_KEPT:])

    def with_model(self, entry: Committed) -> "Head":
        """HEAD with the final model: the job's result exists from here on."""
        self._admit(entry)
        return replace(self, model=entry)

    def _admit(self, entry: Committed) -> None:
        if entry.generation != self.generation:
            raise StaleGeneration(f"HEAD is {self.generation}'s, not {entry.generation}'s")
        if self.newest and entry.step < self.newest.step:
            raise StaleGeneration(
                f"step {entry.step} is older than the committed {self.newest.step}"
            )


# --- The run spec: what to train, written once per job ------------------------------------------


@dataclass(frozen=True, kw_only=True)
class InputFile(Message):
    """A blob that nodes read: its "container/blob name" is its key in Grants.inputs."""

    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, kw_only=True)
class BaseModel(Message):
    """A base model pinned to a revision and staged into Blob; safetensors only."""

    name: str
    revision: str
    files: tuple[InputFile, ...]


@dataclass(frozen=True, kw_only=True)
class Lora(Message):
    """Low-rank adapters on every linear layer (peft's "all-linear")."""

    rank: int
    alpha: int
    dropout: float


@dataclass(frozen=True, kw_only=True)
class RunSpec(Message):
    """The resolved, immutable recipe of one job, as the trainer gets it."""

    version: int
    job_id: str
    seed: int
    method: str  # "supervised"
    base_model: BaseModel
    training_file: InputFile
    validation_file: InputFile | None
    total_steps: int  # optimizer steps of the whole job
    global_batch: int  # rows per optimizer step, whatever the world size
    micro_batch: int  # rows per process and micro-step
    max_seq_len: int  # tokens; longer rows are cut
    learning_rate: float  # peak
    warmup_steps: int
    min_lr_ratio: float  # of the peak, where the cosine ends
    weight_decay: float
    max_grad_norm: float
    precision: str  # "bf16" or "fp32"
    zero_stage: int  # 0 to 3; bf16 needs at least 1
    lora: Lora | None
    gradient_checkpointing: bool
    checkpoint_seconds: float  # between periodic saves
    eval_steps: int  # training steps between validation losses; 0 = only at the end
    nodes: int
    processes_per_node: int
    date: str = "2024-07-26"  # what chat templates get for today; of older specs, Llama's default


# --- The generation row -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Member(Message):
    """One node of a generation."""

    node_id: str
    vm_id: str
    address: str
    node_rank: int


@dataclass(frozen=True, kw_only=True)
class Generation(Message):
    """One membership of nodes = one torchrun world. Immutable; numbers only grow within a job."""

    number: int
    job_id: str
    attempt_id: str
    members: tuple[Member, ...]
    processes_per_node: int
    master_address: str
    master_port: int
    checkpoint: Committed | None
    run_spec_sha256: str

    @property
    def world_size(self) -> int:
        """Processes in the torchrun world."""
        return len(self.members) * self.processes_per_node

    def member(self, node_id: str) -> Member | None:
        """The member that is ``node_id``, or None."""
        return next((m for m in self.members if m.node_id == node_id), None)


# --- The node protocol --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NodeConfig(Message):
    """What cloud-init leaves at NODE_CONFIG on every node of an attempt."""

    protocol: int
    service_url: str
    attempt_id: str
    bootstrap_token: str
    accelerator: str  # "cuda" or "cpu"
    processes_per_node: int  # for people: the generation row decides


@dataclass(frozen=True, kw_only=True)
class Span(Message):
    """One named piece of a node's time, e.g. boot or load; unix seconds by the node's clock."""

    name: str
    started_at: float
    ended_at: float


@dataclass(frozen=True, kw_only=True)
class Registration(Message):
    """POST /internal/nodes, with the attempt's bootstrap token."""

    protocol: int
    attempt_id: str
    vm_id: str
    boot_id: str  # fresh for every start of the supervisor process
    name: str  # the instance's name, "<scale set>_<instance id>"
    address: str
    gpus: int
    spans: tuple[Span, ...] = ()
    now: float = 0.0  # by the clock that dates the spans; the service shifts them to its own


@dataclass(frozen=True, kw_only=True)
class Grants(Message):
    """SAS URLs: the job's container to write, the inputs to read."""

    job: str  # container URL with read, add, create, write, delete, list
    inputs: dict[str, str]  # "container/blob name" -> URL with read
    expires_at: float


@dataclass(frozen=True, kw_only=True)
class Registered(Message):
    """The answer to a registration: who the node is from now on."""

    node_id: str
    node_token: str
    epoch: int  # grows with every new boot_id of this VM; heartbeats of an older epoch are refused
    now: float
    stop_by: float
    grants: Grants


class NodePhase(StrEnum):
    """What a node says it is doing. All but READY speak of one generation."""

    READY = "ready"  # no trainer; may be given a generation
    RUNNING = "running"  # the trainer is being started, runs, or its uploads are settling
    STOPPED = "stopped"  # told to, could not start, HEAD was taken, or its supervisor restarted
    FAILED = "failed"  # the trainer ended by itself with an error: the only phase that blames it
    FINISHED = "finished"  # the last step is done; from rank 0: and HEAD names the model


@dataclass(frozen=True, kw_only=True)
class StepMetrics(Message):
    """What rank 0 measured in one training step."""

    step: int
    loss: float
    learning_rate: float
    grad_norm: float
    tokens: int  # trained (assistant) tokens of this step, all ranks together
    seconds: float
    at: float
    accuracy: float = 0.0
    valid_loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class EvictionNotice(Message):
    """A Scheduled Event of type Preempt, or a SIGTERM, which is treated like one."""

    event_id: str  # Azure's, or "sigterm"
    not_before: float  # unix seconds by the node's clock; 0 when it has begun
    seen_at: float


@dataclass(frozen=True, kw_only=True)
class Trouble(Message):
    """What delays or drops checkpoints while training goes on; said when it begins and ends."""

    kind: str  # "uploads" or "disk"
    message: str  # what is wrong, and what a user can do
    since: float
    until: float = 0.0  # 0 while it lasts


@dataclass(frozen=True, kw_only=True)
class Heartbeat(Message):
    """POST /internal/nodes/{id}/heartbeat, with the node's token; ordered by (epoch, seq)."""

    epoch: int
    seq: int
    phase: NodePhase
    generation: int  # 0 while none was ever started or stopped here
    step: int  # the last training step that a trainer of this boot loaded or finished
    free_port: int  # a port free on this node just now, 0 for none; used if it becomes rank 0
    metrics: tuple[StepMetrics, ...] = ()  # these four: repeated until answered
    committed: tuple[Committed, ...] = ()  # hints; the service believes only HEAD
    spans: tuple[Span, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    eviction: EvictionNotice | None = None
    error: str = ""  # why it FAILED, with the tail of the log, or STOPPED without being told to


@dataclass(frozen=True, kw_only=True)
class HeartbeatAnswer(Message):
    """200. On 401, 403, 404 and 409 stale_epoch the node registers again with the same boot_id.

    Any other 409: stop, commit nothing. 410: the same, and leave. Anything else: try again.
    """

    now: float
    stop_by: float
    directive_seq: int


class DirectiveKind(StrEnum):
    """What the service may ask of a node."""

    START = "start"
    CHECKPOINT_AND_STOP = "checkpoint_and_stop"
    STOP = "stop"
    CARRY_ON = "carry_on"


@dataclass(frozen=True, kw_only=True)
class Directive(Message):
    """GET /internal/nodes/{id}/directive?after=SEQ. CARRY_ON repeats ``after`` as its seq.

    ``stop_by - now`` is how long the node may go on without hearing from the service again,
    counted on the node's own monotonic clock: neither side's wall clock matters.
    """

    seq: int
    kind: DirectiveKind
    now: float
    stop_by: float
    number: int = 0  # the generation that START, STOP and CHECKPOINT_AND_STOP speak of
    generation: Generation | None = None  # with START
    grants: Grants | None = None  # with any kind, from half of their life after registering on
