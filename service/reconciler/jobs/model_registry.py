"""Registers final models, where jobs request it. No job's end and no machine waits for it.

Level-triggered: a model that is not marked as registered is registered, under a name derived from
its job. After a kill between the two it is registered again, which changes nothing.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.azureml.model_registry import ModelRegistry, RegisteredModel
from service.cloud.provider import CloudError
from service.db.jobs import events
from service.db.jobs.jobs import JobRow
from service.db.trackers import model_registry
from service.operations.models.models import full_name
from service.storage.store import BlobStore

log = logging.getLogger(__name__)
TIMEOUT = timedelta(days=1)  # from a job's end
_BATCH_SIZE = 50


@dataclass(frozen=True, kw_only=True)
class ModelRegistrations:
    """Tries to register every model that is not registered yet, once a round."""

    engine: AsyncEngine
    store: BlobStore
    registry: ModelRegistry
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Register models; return the jobs whose models were registered."""
        async with self.engine.connect() as conn:
            jobs = await model_registry.unregistered(conn, _BATCH_SIZE)
        return [job.id for job in jobs if await self._register(job)]

    async def _register(self, job: JobRow) -> bool:
        assert job.result is not None, "it has succeeded"
        model = _registered_model(job, self.store.blob_url(job.id, str(job.result["path"])))
        try:
            await self.registry.register(model)
        except CloudError as fault:
            await self._retry_or_give_up(job, fault)
            return False
        message = f"The model is registered in Azure ML as {model.name}, version {model.version}"
        entry = {"name": model.name, "version": model.version}
        await self._record_result(job, entry, "model.registered", message)
        return True

    async def _retry_or_give_up(self, job: JobRow, fault: CloudError) -> None:
        log.warning("model.register_failed", extra={"job": job.id, "cause": str(fault)})
        if job.finished_at is None or self.now() < job.finished_at + TIMEOUT:
            return
        message = f"The model is not registered in Azure ML; every try failed for a day: {fault}"
        await self._record_result(job, None, "model.not_registered", message, level="warn")

    async def _record_result(
        self,
        job: JobRow,
        entry: dict[str, Any] | None,
        code: str,
        message: str,
        level: str = "info",
    ) -> None:
        async with self.engine.begin() as conn:
            if await model_registry.settle(conn, job.id, entry):
                await events.add(conn, job.id, self.now(), code, message, level=level, data=entry)


def _registered_model(job: JobRow, url: str) -> RegisteredModel:
    assert job.result is not None, "it has succeeded"
    step = str(job.result["step"])
    tags = {
        "rekindle-job": job.id,
        "rekindle-model": full_name(job),
        "base-model": job.model,
        "dataset": job.training_file,
        "checkpoint-step": step,
    }
    return RegisteredModel(name=job.id, version=step, url=url, tags=tags)
