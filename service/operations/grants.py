"""SAS URLs for nodes: the job's container to write, its inputs to read."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from service.db.jobs import JobRow
from service.storage.store import BlobStore
from trainer.contract import Grants

_WRITE = "racwdl"  # Azure's letters: read, add, create, write, delete, list


@dataclass(frozen=True, kw_only=True)
class Granter:
    """Makes grants of one length of life."""

    store: BlobStore
    life: timedelta

    def grant(self, job: JobRow, now: datetime) -> Grants:
        """Fresh URLs for one node of the job."""
        expires_at = now + self.life
        inputs = {}
        for path in job.inputs:
            container, name = path.split("/", 1)
            inputs[path] = self.store.sas_url(
                container, name, permissions="r", expires_at=expires_at
            )
        job_url = self.store.sas_url(job.id, permissions=_WRITE, expires_at=expires_at)
        return Grants(job=job_url, inputs=inputs, expires_at=expires_at.timestamp())

    def wears_out(self, granted_at: datetime, now: datetime) -> bool:
        """True from half of the life on: time to send fresh ones."""
        return now - granted_at > self.life / 2
