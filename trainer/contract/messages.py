"""The node protocol: messages between service and nodes, and blob paths. Standard library only.

Import them from `trainer.contract`.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from trainer.contract.bounds import (
    Bytes,
    CountBound,
    Int,
    Measured,
    Moment,
    Name,
    Prose,
    RangeBound,
    Seconds,
)
from trainer.contract.head import MANIFEST, Committed
from trainer.contract.run_spec import Rung, RunSpec
from trainer.contract.wire import LATER, Message

PROTOCOL = 1
BLOCK = 16 * 2**20  # bytes of a file that go to Blob at once
OLDEST_PROTOCOL = 1  # that the service still understands
HEARTBEAT_SECONDS = 10.0  # and at once on any change
LONG_POLL_SECONDS = 45.0  # default; a node sends its own
LOG_FLUSH_SECONDS = 2.0
AT_ONCE = 1000  # items of one list in a message
ERROR_TAIL_BYTES = 64 * 1024
# Bytes a second that a storage account takes: 60 Gbit/s. Microsoft, Scalability and performance
# targets for standard storage accounts, for general-purpose v2 in the regions that it lists.
STORAGE_INGRESS = 60e9 / 8
NOT_THE_MODEL = "verification failed"  # prefix of the error for a wrong export
RUN_SPEC = "run-spec.json"
BASE_FOLDER = "base"  # in the container of a job that begins with a checkpoint
CONVERTED_BASE = f"{BASE_FOLDER}/{MANIFEST}"
Tokens = Annotated[int, RangeBound(0, 2**40)]  # of one step
Port = Annotated[int, RangeBound(0, 2**16 - 1)]
MEASURED = "measured.jsonl"  # beside a manifest: StepMetrics that were not delivered yet


def converted_base_path(generation: int) -> str:
    """Return the folder of the model that a generation made of a starting checkpoint."""
    return f"{BASE_FOLDER}/generation-{generation:05d}"


def log_path(attempt_id: str, rank: int) -> str:
    """Return the path of the append blob with one rank's output during one attempt."""
    return f"logs/{attempt_id}/rank-{rank:05d}.log"


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
    rung: Rung | None = None  # None: the run spec's
    checkpoint_seconds: float | None = None  # between periodic saves; None: the run spec's

    @property
    def world_size(self) -> int:
        """Number of processes in the torchrun world."""
        return len(self.members) * self.processes_per_node

    def spec_of(self, spec: RunSpec) -> RunSpec:
        """Return the job's run spec with this generation's changes."""
        every = self.checkpoint_seconds or spec.checkpoint_seconds
        return replace(spec.on(self.rung), checkpoint_seconds=every)

    def member(self, node_id: str) -> Member | None:
        """Return the member that is ``node_id``, or None."""
        return next((m for m in self.members if m.node_id == node_id), None)


# --- The node protocol --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ExpectedHardware(Message):
    """The hardware of a healthy machine of the node's VM size; 0: not there."""

    gpus: int
    gpu_memory_gib: int  # of one GPU
    nvlink_gbytes: int  # all-reduce between the GPUs of one machine: bus bandwidth, GB/s
    infiniband_gbps: int  # of each GPU's adapter


@dataclass(frozen=True, kw_only=True)
class NodeConfig(Message):
    """The configuration that cloud-init leaves at NODE_CONFIG on every node of an attempt."""

    protocol: int
    service_url: str
    attempt_id: str
    bootstrap_token: str
    accelerator: str  # "cuda" or "cpu"
    processes_per_node: int  # for people: the generation row decides
    storage_ingress: float = STORAGE_INGRESS  # bytes a second
    hardware: ExpectedHardware | None = None  # None: not checked
    vm_size: str = ""  # "": from the metadata service
    traceparent: str = ""  # W3C's, of the attempt; "": not traced


@dataclass(frozen=True, kw_only=True)
class Span(Message):
    """One named piece of a node's time, e.g. boot or load; unix seconds by the node's clock."""

    name: Name
    started_at: Moment
    ended_at: Moment


@dataclass(frozen=True, kw_only=True)
class Registration(Message):
    """POST /internal/nodes, with the attempt's bootstrap token."""

    protocol: Int
    attempt_id: Name
    vm_id: Name
    boot_id: Name  # fresh for every start of the supervisor process
    name: Name  # the instance's name, "<scale set>_<instance id>"
    address: Name
    gpus: Int
    spans: Annotated[tuple[Span, ...], CountBound(AT_ONCE)] = ()
    now: Moment = 0.0  # by the clock that dates the spans; the service shifts them to its own
    vm_size: Name = ""  # from its metadata service
    # NAME=VALUE, of its size, for every rank: which interface, InfiniBand or not
    network: Annotated[tuple[Name, ...], CountBound(64)] = ()


@dataclass(frozen=True, kw_only=True)
class Grants(Message):
    """SAS URLs: the job's container to write, the inputs to read."""

    job: str  # container URL with read, add, create, write, delete, list
    inputs: dict[str, str]  # "container/blob name" -> URL with read
    expires_at: float


@dataclass(frozen=True, kw_only=True)
class Registered(Message):
    """The answer to a registration: the node's identity and token."""

    node_id: str
    node_token: str
    epoch: int  # grows with every new boot_id of this VM; heartbeats of an older epoch are refused
    now: float
    stop_by: float
    grants: Grants


class NodePhase(StrEnum):
    """The phase that a node reports. All but READY refer to one generation."""

    READY = "ready"  # no trainer; may be given a generation
    RUNNING = "running"  # the trainer is being started, runs, or its uploads are settling
    STOPPED = "stopped"  # asked to, could not start, HEAD was taken, or its supervisor restarted
    FAILED = "failed"  # the trainer ended by itself with an error: the only phase that blames it
    FINISHED = "finished"  # the last step is done; from rank 0: and HEAD names the model


@dataclass(frozen=True, kw_only=True)
class StepMetrics(Message):
    """Rank 0's measurements of one training step."""

    step: Int
    loss: Measured  # NaN: no row of the step had a target
    learning_rate: Measured
    grad_norm: Measured
    tokens: Tokens  # trained (assistant) tokens of this step, all ranks together
    seconds: Seconds
    at: Moment
    accuracy: Measured = 0.0  # share of tokens, or of pairs, that the model gets right
    valid_loss: Measured | None = None
    margin: Measured | None = field(default=None, metadata=LATER)  # of rewards, mean over pairs
    reward: Measured | None = field(default=None, metadata=LATER)  # mean grade of the answers
    kl: Measured | None = field(default=None, metadata=LATER)  # nats per answer, from the base
    answer_tokens: Measured | None = field(default=None, metadata=LATER)  # mean length of an answer
    grader_errors: Int = field(default=0, metadata=LATER)  # answers that could not be graded
    loss_scale: Measured | None = field(default=None, metadata=LATER)  # fp16's, of the next step
    mfu: Measured | None = field(default=None, metadata=LATER)  # share of the GPUs' peak
    peak_memory: Bytes | None = field(default=None, metadata=LATER)  # bytes, of the rank with most
    slowest_rank: Int | None = field(default=None, metadata=LATER)  # looked for now and then
    slowest_ratio: Measured | None = field(default=None, metadata=LATER)  # to the median rank
    spike: Measured | None = field(default=None, metadata=LATER)  # the loss, to the usual one
    skipped: bool = field(default=False, metadata=LATER)  # no update: fp16 overflowed; no targets


@dataclass(frozen=True, kw_only=True)
class EvictionNotice(Message):
    """A Scheduled Event of type Preempt, or a SIGTERM, which is treated like one."""

    event_id: Name  # Azure's, or "sigterm"
    not_before: Moment  # unix seconds by the node's clock; 0 when it has begun
    seen_at: Moment


@dataclass(frozen=True, kw_only=True)
class Trouble(Message):
    """A problem that delays checkpoints while training goes on, or a notice to the user."""

    kind: Name  # "uploads" or "disk"
    message: Prose  # what is wrong, and the remedy
    since: Moment
    until: Moment = 0.0  # 0 while it lasts


@dataclass(frozen=True, kw_only=True)
class SaveCost(Message):
    """The cost of the last save."""

    stall: Seconds  # seconds that training stood still
    upload: Seconds  # seconds until it was committed
    blocks: Int


@dataclass(frozen=True, kw_only=True)
class BrokenCheckpoint(Message):
    """A node's report that a checkpoint it must load is not as committed."""

    path: Name  # the checkpoint's folder
    file: Prose  # the first wrong file in it
    reason: Prose  # what is wrong with it, e.g. "is gone"


@dataclass(frozen=True, kw_only=True)
class GpuLoad(Message):
    """Utilization of one GPU, as its driver reports."""

    busy: Annotated[float, RangeBound(0, 1)]  # share of time in which a kernel ran
    memory: Annotated[float, RangeBound(0, 1)]  # share of its memory in use


@dataclass(frozen=True, kw_only=True)
class GpuErrors(Message):
    """Errors of the node's GPUs since the last answered heartbeat, as the driver counts.

    Counted again where the answer to a heartbeat was lost.
    """

    corrected: Int = 0  # by ECC
    uncorrected: Int = 0
    fatal_xids: Int = 0  # Xid errors that mean broken hardware
    other_xids: Int = 0  # the rest: a program's fault, or for information


@dataclass(frozen=True, kw_only=True)
class Heartbeat(Message):
    """POST /internal/nodes/{id}/heartbeat, with the node's token; ordered by (epoch, seq)."""

    epoch: Int
    seq: Int
    phase: NodePhase
    generation: Int  # 0 while none was ever started or stopped here
    step: Int  # the last training step that a trainer of this boot loaded or finished
    free_port: Port  # a port free on this node just now, 0 for none; used if it becomes rank 0
    # These four: repeated until answered.
    metrics: Annotated[tuple[StepMetrics, ...], CountBound(AT_ONCE)] = ()
    committed: Annotated[
        tuple[Committed, ...], CountBound(AT_ONCE)
    ] = ()  # the service believes HEAD
    spans: Annotated[tuple[Span, ...], CountBound(AT_ONCE)] = ()
    troubles: Annotated[tuple[Trouble, ...], CountBound(AT_ONCE)] = ()
    eviction: EvictionNotice | None = None
    error: Prose = ""  # why it FAILED, with the tail of the log, or STOPPED without a request
    broken: BrokenCheckpoint | None = None  # why STOPPED
    out_of_memory: bool = False  # while it trained: why it ended
    non_retryable: bool = False  # no second try would help; see error
    unhealthy: Prose = ""  # why this machine must be replaced
    save_cost: SaveCost | None = None  # of the last save, as rank 0 measured it in this run
    # Of this minute, if they were read since the last heartbeat.
    gpus: Annotated[tuple[GpuLoad, ...], CountBound(64)] = ()
    gpu_errors: GpuErrors | None = None  # None: no new ones


@dataclass(frozen=True, kw_only=True)
class HeartbeatAnswer(Message):
    """The answer to a heartbeat, status 200.

    On 401, 403, 404 and 409 stale_epoch the node registers again with the same boot_id. Any other
    409: stop, commit nothing. 410: the same, and leave. Anything else: retry.
    """

    now: float
    stop_by: float
    directive_seq: int


class DirectiveKind(StrEnum):
    """What the service asks of a node."""

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
