"""Entry point of a node: read the configuration, compose and run the supervisor."""

import asyncio
import fcntl
import logging
import os
import signal
import uuid
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from trainer.contract import PROTOCOL, ExpectedHardware, NodeConfig
from trainer.supervisor.blob.container import BlobAccess
from trainer.supervisor.clock import NodeClock, NodeLimits
from trainer.supervisor.context import SupervisorContext
from trainer.supervisor.control.launch import Command, TrainerLauncher, torchrun_command
from trainer.supervisor.machine import azureml, liveness
from trainer.supervisor.machine.azureml import JobNode
from trainer.supervisor.machine.boot_times import TIMES, read_boot_spans
from trainer.supervisor.machine.health import XIDS, HealthCheck
from trainer.supervisor.machine.memory_files import MemoryFolder
from trainer.supervisor.machine.metadata import Metadata
from trainer.supervisor.report.service_client import ServiceClient
from trainer.supervisor.supervisor import Supervisor

NODE_CONFIG = "/etc/rekindle/node.json"
METADATA_URL = "http://169.254.169.254"
WORK_DIR = "/var/lib/rekindle"
LOCK = "lock"

LEFT, BAD_CONFIGURATION, ALREADY_RUNNING = 0, 2, 3

log = logging.getLogger(__name__)


class AlreadyRunningError(Exception):
    """Another supervisor runs in this work folder."""


@dataclass(frozen=True, kw_only=True)
class SupervisorSettings:
    """Settings from the environment."""

    node_config: Path
    metadata_url: str
    work: Path
    memory: Path | None = None  # None: on the same disk
    job: JobNode | None = None  # of Azure ML; None: a machine of a scale set


def main() -> int:
    """Run the supervisor of this machine; return the exit status."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level="INFO")
    logging.getLogger("azure").setLevel("WARNING")
    logging.getLogger("httpx").setLevel("WARNING")
    return run_supervisor(read_settings(os.environ), torchrun_command, NodeLimits())


def run_supervisor(settings: SupervisorSettings, command: Command, limits: NodeLimits) -> int:
    """Supervise with this trainer until the node leaves; return the exit status."""
    try:
        config = _read_config(settings)
        settings.work.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as e:
        log.error("configuration.bad reason=%s", e)  # noqa: TRY400 - the reason is all
        return BAD_CONFIGURATION
    is_restart = (settings.work / LOCK).exists()
    try:
        with _lock_work_folder(settings.work):
            asyncio.run(_run(settings, config, command, limits, is_restart=is_restart))
    except AlreadyRunningError as e:
        log.error("work.taken reason=%s", e)  # noqa: TRY400 - the reason is all
        return ALREADY_RUNNING
    return LEFT


def read_settings(env: MutableMapping[str, str]) -> SupervisorSettings:
    """Read the settings; remove a job's secrets from the environment."""
    job = azureml.take_job_environment(env)
    memory = env.get("REKINDLE_MEMORY_DIR")
    return SupervisorSettings(
        node_config=Path(env.get("REKINDLE_NODE_CONFIG", NODE_CONFIG)),
        metadata_url=env.get("REKINDLE_METADATA_URL", METADATA_URL),
        work=Path(env.get("REKINDLE_WORK_DIR", azureml.WORK_DIR if job else WORK_DIR)),
        memory=Path(memory) if memory else azureml.find_memory_folder() if job else None,
        job=job,
    )


def _read_config(settings: SupervisorSettings) -> NodeConfig:
    job, path = settings.job, settings.node_config
    config = NodeConfig.from_json(job.config if job else path.read_bytes())
    if config.protocol != PROTOCOL:
        raise ValueError(
            f"{azureml.CONFIG if job else path}: protocol {config.protocol}, but this image speaks"
            f" {PROTOCOL}; deploy service and trainer image of the same version"
        )
    return config


@contextmanager
def _lock_work_folder(work: Path) -> Iterator[None]:
    """Lock the work folder for this process."""
    with (work / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise AlreadyRunningError(f"another supervisor works in {work}; stop it first") from e
        yield


async def _run(
    settings: SupervisorSettings,
    config: NodeConfig,
    command: Command,
    limits: NodeLimits,
    *,
    is_restart: bool,
) -> None:
    work = settings.work.resolve()
    boot_spans, started_at = read_boot_spans(
        settings.node_config.with_name(TIMES), psutil.Process().create_time(), is_restart=is_restart
    )
    launcher = TrainerLauncher(
        command=command,
        environment={**os.environ, **_expected_bandwidths(config.hardware)},
        accelerator=config.accelerator,
        mark=str(work),
    )
    access = BlobAccess()
    async with (
        ServiceClient(config, long_poll=limits.long_poll) as service,
        _metadata_client(settings, config) as metadata,
    ):
        context = SupervisorContext(
            config=config,
            boot_id=uuid.uuid4().hex,
            started_at=started_at,
            gpus=_gpus(),
            work=work,
            memory=MemoryFolder(settings.memory or work / "memory"),
            service=service,
            metadata=metadata,
            access=access,
            launcher=launcher,
            limits=_limits(limits, settings, config),
            clock=NodeClock(),
            health=HealthCheck(expected=config.hardware, xids=settings.node_config.with_name(XIDS)),
            boot_spans=boot_spans,
        )
        supervisor = Supervisor(context)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, supervisor.terminate)
        liveness_task = asyncio.create_task(_touch_liveness_file(work))
        try:
            await supervisor.run()
        finally:
            liveness_task.cancel()
            access.close()


def _metadata_client(settings: SupervisorSettings, config: NodeConfig) -> Metadata | JobNode:
    """Return the source of this machine's identity."""
    if settings.job is None:
        return Metadata(settings.metadata_url)
    return replace(settings.job, vm_size=config.vm_size)


def _limits(limits: NodeLimits, settings: SupervisorSettings, config: NodeConfig) -> NodeLimits:
    notice = min(limits.notice, azureml.GRACE) if settings.job else limits.notice
    return replace(limits, ingress=config.storage_ingress, notice=notice)


async def _touch_liveness_file(work: Path) -> None:
    """Touch the liveness file while the event loop runs."""
    while True:
        try:
            await asyncio.to_thread(liveness.touch_liveness_file, work)
        except OSError as e:
            log.warning("alive.unshown reason=%s", e)
        await asyncio.sleep(liveness.BEAT_SECONDS)


def _expected_bandwidths(expected: ExpectedHardware | None) -> dict[str, str]:
    """Return the ranks' expected all-reduce bandwidths, in GB/s."""
    if expected is None:
        return {}
    between = expected.infiniband_gbps * expected.gpus / 8
    return {
        "REKINDLE_SPEED_INSIDE": str(expected.nvlink_gbytes),
        "REKINDLE_SPEED_BETWEEN": str(between),
    }


def _gpus() -> int:
    """Return the number of NVIDIA GPUs that the kernel's driver has found."""
    folder = Path("/proc/driver/nvidia/gpus")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
