"""Keeps the serial logs of machines that did not boot, before they are deleted with them.

Each lies where a rank's log would: of an attempt that opened no generation no rank has printed. So
whoever reads the logs of the attempt reads why it did not boot.
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
SECONDS = 20.0  # for all of them: machines cost money, so their deletion does not wait longer
MOST = 4  # machines


def are_wanted(row: AttemptRow, seen: AttemptView, step: MoveAttempt) -> bool:
    """Return whether ``step`` gives up machines that never trained."""
    began = row.state in (AttemptState.PROVISIONING, AttemptState.STARTING)
    return began and step.outcome is Outcome.UNRESPONSIVE and seen.generation is None


async def keep(
    engine: AsyncEngine,
    cloud: CloudProvider,
    store: BlobStore,
    row: AttemptRow,
    seen: AttemptView,
    now: datetime,
) -> None:
    """Copy them to the attempt's logs, each tried once; what fails is logged, and that is all."""
    kept: list[str] = []
    try:
        async with asyncio.timeout(SECONDS):
            await _copy(cloud, store, row, {node.vm_id for node in seen.nodes}, kept)
    except (CloudError, StorageError, TimeoutError) as fault:
        facts = {"attempt": row.id, "cause": str(fault) or "it took too long"}
        log.warning("attempt.no_serial_log", extra=facts)
    if kept:
        which = " and ".join(f"--rank {n} ({name})" for n, name in enumerate(kept))
        text = f"The machines' serial logs are kept: rekindle logs --attempt {row.number} {which}"
        async with engine.begin() as conn:
            await events.add(conn, row.job_id, now, "attempt.serial_log", text, attempt_id=row.id)


async def _copy(
    cloud: CloudProvider, store: BlobStore, row: AttemptRow, joined: set[str], kept: list[str]
) -> None:
    """Of those that did not join; the first is read as the log of rank 0, and so on."""
    found = await cloud.get(scale_set_name(row.id))
    for machine in [i for i in found.instances if i.vm_id not in joined][:MOST]:
        text = await cloud.serial_log(found.name, machine.instance_id)
        head = f"Serial log of {machine.name}, which did not join:\n".encode()
        await store.write(row.job_id, log_path(row.id, len(kept)), head + text)
        kept.append(machine.name)
