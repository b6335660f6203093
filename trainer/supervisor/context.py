"""The dependencies of a supervisor, and its retry policy."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    retry_if_not_exception_type,
    wait_random_exponential,
)

from trainer.contract import NodeConfig, Span
from trainer.supervisor.blob.container import BlobAccess
from trainer.supervisor.clock import NodeClock, NodeLimits
from trainer.supervisor.control.launch import TrainerLauncher
from trainer.supervisor.machine.azureml import JobNode
from trainer.supervisor.machine.health import HealthCheck
from trainer.supervisor.machine.memory_files import MemoryFolder
from trainer.supervisor.machine.metadata import Metadata
from trainer.supervisor.report.service_client import AttemptOverError, ServiceClient


@dataclass(frozen=True, kw_only=True)
class SupervisorContext:
    """The dependencies of a supervisor; made by main, or by a test."""

    config: NodeConfig
    boot_id: str
    started_at: float  # since when the time is the supervisor's
    gpus: int
    work: Path
    memory: MemoryFolder
    service: ServiceClient
    metadata: Metadata | JobNode
    access: BlobAccess
    launcher: TrainerLauncher
    limits: NodeLimits
    clock: NodeClock
    health: HealthCheck = field(default_factory=HealthCheck)
    boot_spans: tuple[Span, ...] = ()  # what the machine did before that

    def retry_forever(
        self, error: type[Exception], wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> AsyncRetrying:
        """Retry on this error, with jitter, without limit; except after AttemptOverError."""
        return AsyncRetrying(
            retry=retry_if_exception_type(error) & retry_if_not_exception_type(AttemptOverError),
            wait=wait_random_exponential(multiplier=0.25, max=self.limits.retry),
            sleep=wait,
        )
