"""/v1/fine_tuning/jobs/{id}/cost: spent, forecast, saved; and /metrics, the series."""

from typing import Any

from fastapi import APIRouter

from service.api import job_views
from service.api.deps import CallerDep, Db, Now
from service.db import attempts, ledger, metrics
from service.operations import jobs

router = APIRouter(prefix="/fine_tuning/jobs", tags=["fine-tuning"])


@router.get("/{job_id}/cost")
async def get_cost(db: Db, caller: CallerDep, now: Now, job_id: str) -> dict[str, Any]:
    """Metered live; ``final`` once every machine is seen to be gone."""
    job = await jobs.get(db, caller.project_id, job_id)
    tried = await attempts.of_job(db, job_id)
    rows = await ledger.of_job(db, job_id)
    progress = await metrics.progress(db, job_id)
    shown = job_views.costs(job, tried, rows, progress, now)
    return {"object": "fine_tuning.job.cost", "job": job_id} | shown


@router.get("/{job_id}/metrics")
async def get_metrics(db: Db, caller: CallerDep, job_id: str) -> dict[str, Any]:
    """One row per training step."""
    await jobs.get(db, caller.project_id, job_id)
    rows = await metrics.of_job(db, job_id)
    data = [{k: v for k, v in row.items() if k != "job_id"} for row in rows]
    return {"object": "list", "data": data, "has_more": False}
