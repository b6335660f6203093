"""What service and nodes agree on: messages, blob paths, run specs. Standard library only.

The service imports this package and nothing else of the trainer. `docs/contract.md` says what each
side does when the other one is silent, late or stale, or sends a message twice.
"""

from trainer.contract.bounds import (
    UNSTORABLE as UNSTORABLE,
)
from trainer.contract.deepspeed_config import (
    LOWEST_LOSS_SCALE as LOWEST_LOSS_SCALE,
)
from trainer.contract.deepspeed_config import (
    engine_config as engine_config,
)
from trainer.contract.deepspeed_config import (
    micro_steps as micro_steps,
)
from trainer.contract.grader_spec import (
    GraderSpec as GraderSpec,
)
from trainer.contract.grader_spec import (
    missing_fields as missing_fields,
)
from trainer.contract.grader_spec import (
    parse_grader as parse_grader,
)
from trainer.contract.grader_spec import (
    reward_models as reward_models,
)
from trainer.contract.grader_spec import (
    sources as sources,
)
from trainer.contract.grader_spec import (
    template_fields as template_fields,
)
from trainer.contract.head import (
    CHECKPOINTS_KEPT as CHECKPOINTS_KEPT,
)
from trainer.contract.head import (
    HEAD as HEAD,
)
from trainer.contract.head import (
    MANIFEST as MANIFEST,
)
from trainer.contract.head import (
    MILESTONES_KEPT as MILESTONES_KEPT,
)
from trainer.contract.head import (
    MOST_FILES as MOST_FILES,
)
from trainer.contract.head import (
    Committed as Committed,
)
from trainer.contract.head import (
    FileEntry as FileEntry,
)
from trainer.contract.head import (
    Head as Head,
)
from trainer.contract.head import (
    Manifest as Manifest,
)
from trainer.contract.head import (
    Retention as Retention,
)
from trainer.contract.head import (
    StaleGeneration as StaleGeneration,
)
from trainer.contract.head import (
    checkpoint_path as checkpoint_path,
)
from trainer.contract.head import (
    model_path as model_path,
)
from trainer.contract.messages import (
    AT_ONCE as AT_ONCE,
)
from trainer.contract.messages import (
    BASE_FOLDER as BASE_FOLDER,
)
from trainer.contract.messages import (
    BLOCK as BLOCK,
)
from trainer.contract.messages import (
    CONVERTED_BASE as CONVERTED_BASE,
)
from trainer.contract.messages import (
    ERROR_TAIL_BYTES as ERROR_TAIL_BYTES,
)
from trainer.contract.messages import (
    HEARTBEAT_SECONDS as HEARTBEAT_SECONDS,
)
from trainer.contract.messages import (
    LOG_FLUSH_SECONDS as LOG_FLUSH_SECONDS,
)
from trainer.contract.messages import (
    LONG_POLL_SECONDS as LONG_POLL_SECONDS,
)
from trainer.contract.messages import (
    MEASURED as MEASURED,
)
from trainer.contract.messages import (
    NOT_THE_MODEL as NOT_THE_MODEL,
)
from trainer.contract.messages import (
    OLDEST_PROTOCOL as OLDEST_PROTOCOL,
)
from trainer.contract.messages import (
    PROTOCOL as PROTOCOL,
)
from trainer.contract.messages import (
    RUN_SPEC as RUN_SPEC,
)
from trainer.contract.messages import (
    STORAGE_INGRESS as STORAGE_INGRESS,
)
from trainer.contract.messages import (
    BrokenCheckpoint as BrokenCheckpoint,
)
from trainer.contract.messages import (
    Directive as Directive,
)
from trainer.contract.messages import (
    DirectiveKind as DirectiveKind,
)
from trainer.contract.messages import (
    EvictionNotice as EvictionNotice,
)
from trainer.contract.messages import (
    ExpectedHardware as ExpectedHardware,
)
from trainer.contract.messages import (
    Generation as Generation,
)
from trainer.contract.messages import (
    GpuErrors as GpuErrors,
)
from trainer.contract.messages import (
    GpuLoad as GpuLoad,
)
from trainer.contract.messages import (
    Grants as Grants,
)
from trainer.contract.messages import (
    Heartbeat as Heartbeat,
)
from trainer.contract.messages import (
    HeartbeatAnswer as HeartbeatAnswer,
)
from trainer.contract.messages import (
    Member as Member,
)
from trainer.contract.messages import (
    NodeConfig as NodeConfig,
)
from trainer.contract.messages import (
    NodePhase as NodePhase,
)
from trainer.contract.messages import (
    Port as Port,
)
from trainer.contract.messages import (
    Registered as Registered,
)
from trainer.contract.messages import (
    Registration as Registration,
)
from trainer.contract.messages import (
    SaveCost as SaveCost,
)
from trainer.contract.messages import (
    Span as Span,
)
from trainer.contract.messages import (
    StepMetrics as StepMetrics,
)
from trainer.contract.messages import (
    Tokens as Tokens,
)
from trainer.contract.messages import (
    Trouble as Trouble,
)
from trainer.contract.messages import (
    converted_base_path as converted_base_path,
)
from trainer.contract.messages import (
    log_path as log_path,
)
from trainer.contract.run_spec import (
    ConvertedBase as ConvertedBase,
)
from trainer.contract.run_spec import (
    Curriculum as Curriculum,
)
from trainer.contract.run_spec import (
    Dpo as Dpo,
)
from trainer.contract.run_spec import (
    InputFile as InputFile,
)
from trainer.contract.run_spec import (
    Lora as Lora,
)
from trainer.contract.run_spec import (
    LossScaling as LossScaling,
)
from trainer.contract.run_spec import (
    Mix as Mix,
)
from trainer.contract.run_spec import (
    PinnedModel as PinnedModel,
)
from trainer.contract.run_spec import (
    Ranked as Ranked,
)
from trainer.contract.run_spec import (
    Reinforcement as Reinforcement,
)
from trainer.contract.run_spec import (
    Rung as Rung,
)
from trainer.contract.run_spec import (
    RunSpec as RunSpec,
)
from trainer.contract.run_spec import (
    SpikeGuard as SpikeGuard,
)
from trainer.contract.run_spec import (
    StartingCheckpoint as StartingCheckpoint,
)
from trainer.contract.run_spec import (
    TrainingOptions as TrainingOptions,
)
from trainer.contract.wire import (
    LATER as LATER,
)
from trainer.contract.wire import (
    Message as Message,
)
