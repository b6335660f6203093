"""Keep the serial logs of machines that did not boot, before they are deleted with the machines.

Each is stored as the log of a rank: no rank has printed in an attempt without a generation. So the
logs of the attempt show why it did not boot.
"""

import asyncio
import logging
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import CloudError, CloudProvider
from service.db.attempts.attempts import AttemptRow
from service.db.jobs import events
from service.domain.cloud.fleet import scale_set_name
from service.domain.lifecycle.attempt import AttemptView, MoveAttempt
from service.domain.states import AttemptState, Outcome
from service.storage.store import BlobStore, StorageError
from trainer.contract import log_path

log = logging.getLogger(__name__)
TIME_LIMIT_SECONDS = 20.0  # for all logs: machines cost money while their deletion waits
MAX_MACHINES = 4  # whose logs are copied


def is_boot_failure(row: AttemptRow, view: AttemptView, step: MoveAttempt) -> bool:
    """Return whether ``step`` gives up machines that never trained."""
    is_booting = row.state in (AttemptState.PROVISIONING, AttemptState.STARTING)
    return is_booting and step.outcome is Outcome.UNRESPONSIVE and view.generation is None


async def copy_serial_logs(
    engine: AsyncEngine,
    cloud: CloudProvider,
    store: BlobStore,
    row: AttemptRow,
    view: AttemptView,
    now: datetime,
) -> None:
    """Copy serial logs to the attempt's logs; try each once, and log a failure."""
    machine_names: list[str] = []
    try:
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            await _copy_logs(cloud, store, row, {node.vm_id for node in view.nodes}, machine_names)
    except (CloudError, StorageError, TimeoutError) as fault:
        facts = {"attempt": row.id, "cause": str(fault) or "it took too long"}
        log.warning("attempt.no_serial_log", extra=facts)
    if machine_names:
        options = " and ".join(f"--rank {n} ({name})" for n, name in enumerate(machine_names))
        text = f"The machines' serial logs are kept: rekindle logs --attempt {row.number} {options}"
        async with engine.begin() as conn:
            await events.add(conn, row.job_id, now, "attempt.serial_log", text, attempt_id=row.id)


async def _copy_logs(
    cloud: CloudProvider,
    store: BlobStore,
    row: AttemptRow,
    joined_vm_ids: set[str],
    machine_names: list[str],
) -> None:
    """Copy the logs of machines that did not join, as the logs of rank 0 and so on."""
    scale_set = await cloud.get(scale_set_name(row.id))
    for machine in [i for i in scale_set.instances if i.vm_id not in joined_vm_ids][:MAX_MACHINES]:
        text = await cloud.serial_log(scale_set.name, machine.instance_id)
        head = f"Serial log of {machine.name}, which did not join:\n".encode()
        await store.write(row.job_id, log_path(row.id, len(machine_names)), head + text)
        machine_names.append(machine.name)
