"""POST /v1/fine_tuning/jobs/{id}/simulation: simulate the job's plan many times."""

import asyncio
import math
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from contract.strict import Strict
from service.api.deps import Now, PartsDep, Reader
from service.api.http.requests import JsonRoute
from service.api.schemas.plans import Simulation, Way
from service.db.attempts import machine_history
from service.domain.simulation.job_simulation import StrategyResult, simulate_job
from service.operations.jobs import jobs

router = APIRouter(prefix="/fine_tuning/jobs", tags=["Simulations"], route_class=JsonRoute)
_HOURS = 24 * 365
_SIMULATION_LOCK = asyncio.Semaphore(1)  # it is a second or more of computing


class SimulationRequest(Strict):
    """Number of simulations, and a deadline instead of the job's own."""

    deadline_hours: Annotated[float, Field(gt=0, le=_HOURS)] | None = None  # None: its own
    lives: Annotated[int, Field(ge=1, le=100)] = 20
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1


@router.post("/{job_id}/simulation", operation_id="createSimulation")
async def simulate(
    parts: PartsDep, caller: Reader, now: Now, job_id: str, body: SimulationRequest
) -> Simulation:
    """Simulate the cost and duration of the job's plan. Nothing is stored."""
    async with parts.reading.connect() as conn:  # not held while it computes
        job = await jobs.get(conn, caller.project_id, job_id)
        plan = job.parsed_plan
        experiences = await machine_history.holds_by_offering(
            conn, [option.offering for option in plan.options], now
        )
    deadline = job.constraints.binding_deadline_seconds(job.created_at, body.deadline_hours)
    async with _SIMULATION_LOCK:
        trials = await asyncio.to_thread(
            simulate_job,
            plan.options,
            {offering: experience.holds for offering, experience in experiences.items()},
            deadline_s=deadline,
            lives=body.lives,
            seed=body.seed,
        )
    trial_views = [_way(trial) for trial in trials]
    hours = None if deadline is None else round(deadline / 3600, 2)
    return Simulation(job=job_id, lives=body.lives, deadline_hours=hours, ways=trial_views)


def _way(trial: StrategyResult) -> Way:
    """Return one way of running the job; null where a simulated life has no end."""
    plain = trial.as_dict()
    plain["dollars"] = {name: f"{value:.4f}" for name, value in plain["dollars"].items()}
    for member in ("hours", "evictions"):
        plain[member] = {
            name: round(value, 4) if math.isfinite(value) else None
            for name, value in plain[member].items()
        }
    return Way(**plain, currency="USD")
