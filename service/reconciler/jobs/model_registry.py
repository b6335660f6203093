"""Registers the final models of jobs that ask for it. No job's end and no machine waits for it.

Level-triggered: a model that is not marked as registered is registered, under a name that follows
from its job. Killed between the two, it is registered again, which changes nothing.
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
PATIENCE = timedelta(days=1)  # from a job's end
_AT_ONCE = 50


@dataclass(frozen=True, kw_only=True)
class ModelRegistrations:
    """Tries every model that is not registered yet once a round."""

    engine: AsyncEngine
    store: BlobStore
    registry: ModelRegistry
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Return the jobs whose models were registered."""
        async with self.engine.connect() as conn:
            found = await model_registry.unregistered(conn, _AT_ONCE)
        return [job.id for job in found if await self._register(job)]

    async def _register(self, job: JobRow) -> bool:
        assert job.result is not None, "it has succeeded"
        model = _entry(job, self.store.blob_url(job.id, str(job.result["path"])))
        try:
            await self.registry.register(model)
        except CloudError as fault:
            await self._put_off(job, fault)
            return False
        told = f"The model is registered in Azure ML as {model.name}, version {model.version}"
        kept = {"name": model.name, "version": model.version}
        await self._settle(job, kept, "model.registered", told)
        return True

    async def _put_off(self, job: JobRow, fault: CloudError) -> None:
        log.warning("model.register_failed", extra={"job": job.id, "cause": str(fault)})
        if job.finished_at is None or self.now() < job.finished_at + PATIENCE:
            return
        told = f"The model could not be registered in Azure ML for a day, so it is not: {fault}"
        await self._settle(job, None, "model.not_registered", told, level="warn")

    async def _settle(
        self, job: JobRow, kept: dict[str, Any] | None, code: str, told: str, level: str = "info"
    ) -> None:
        async with self.engine.begin() as conn:
            if await model_registry.settle(conn, job.id, kept):
                await events.add(conn, job.id, self.now(), code, told, level=level, data=kept)


def _entry(job: JobRow, url: str) -> RegisteredModel:
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
