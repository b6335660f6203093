"""How a job is shown: OpenAI's object, and our members beside it."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from service.db.attempts import AttemptRow
from service.db.jobs import JobRow
from service.domain import cost
from service.domain.cost import LedgerRow
from service.domain.plan import Plan
from service.domain.states import (
    JOB_TERMINAL,
    OPENAI_STATUS,
    AttemptState,
    JobState,
    Outcome,
)

_PHASES = {
    AttemptState.PENDING: "waiting_capacity",
    AttemptState.PROVISIONING: "provisioning",
    AttemptState.STARTING: "starting",
    AttemptState.RUNNING: "training",
}


def basic(job: JobRow) -> dict[str, Any]:
    """What every list shows: the OpenAI object with the members that need no further query."""
    plan = Plan.from_dict(job.plan)
    recipe, request = plan.recipe, job.request
    hyper = {
        "batch_size": recipe.batch_size,
        "learning_rate_multiplier": recipe.learning_rate_multiplier,
        "n_epochs": recipe.n_epochs,
    }
    shown = {
        "id": job.id,
        "object": "fine_tuning.job",
        "created_at": _seconds(job.created_at),
        "error": job.error,
        "fine_tuned_model": fine_tuned_model(job),
        "finished_at": _seconds(job.finished_at),
        "hyperparameters": hyper,
        "model": job.model,
        "organization_id": job.project_id,
        "result_files": [],
        "seed": request["seed"],
        "status": OPENAI_STATUS[job.state],
        "trained_tokens": None,
        "training_file": job.training_file,
        "validation_file": job.validation_file,
        "integrations": [],
        "metadata": request.get("metadata"),
        "method": {"type": "supervised", "supervised": {"hyperparameters": hyper}},
        "user_provided_suffix": request.get("suffix"),
        "started_at": _seconds(job.started_at),
        "status_reason": {"code": str(job.state), "message": job.reason},
        "phase": str(job.state),
    }
    if job.cancel_requested_at and job.state not in JOB_TERMINAL:
        shown["status_reason"] = {"code": "cancelling", "message": "cancel was asked for"}
    return shown


def detailed(
    job: JobRow,
    attempts: list[AttemptRow],
    ledger: list[LedgerRow],
    progress: tuple[int, int, float | None],
    now: datetime,
) -> dict[str, Any]:
    """One job with progress, plan, cost and a summary of its attempts."""
    step, tokens, step_seconds = progress
    plan = Plan.from_dict(job.plan)
    over = job.state in JOB_TERMINAL
    left = max(job.total_steps - step, 0) * (step_seconds or plan.chosen.seconds_per_step)
    return basic(job) | {
        "phase": phase(job, attempts),
        "trained_tokens": tokens if over else None,
        "estimated_finish": None if over else int(now.timestamp() + left),
        "progress": {
            "step": step,
            "total_steps": job.total_steps,
            "percent": round(100 * step / job.total_steps, 1),
            "seconds_per_step": step_seconds,
        },
        "attempts": {
            "count": len(attempts),
            "current": attempts[-1].id if attempts else None,
            "evictions": sum(a.outcome is Outcome.EVICTED for a in attempts),
        },
        "cost": costs(job, attempts, ledger, progress, now),
        "plan": job.plan,
        "result": job.result,
    }


def phase(job: JobRow, attempts: list[AttemptRow]) -> str:
    """Finer than the status, and free to grow."""
    if job.state in JOB_TERMINAL:
        return "done"
    if job.state in (JobState.VALIDATING, JobState.PAUSED):
        return str(job.state)
    if attempts and attempts[-1].state in _PHASES:
        return _PHASES[attempts[-1].state]
    return "recovering" if job.state is JobState.RECOVERING else "waiting_capacity"


def costs(
    job: JobRow,
    attempts: list[AttemptRow],
    ledger: list[LedgerRow],
    progress: tuple[int, int, float | None],
    now: datetime,
) -> dict[str, Any]:
    """Spent so far, what it will be, what it would have been on demand. Decimal strings."""
    plan = Plan.from_dict(job.plan)
    spent = cost.spent(ledger, now)
    on_demand = cost.on_demand_equivalent(ledger, now)
    over = job.state in JOB_TERMINAL
    final = over and all(a.state is AttemptState.ENDED for a in attempts)
    total = spent if over else _forecast(job, plan, attempts, spent, progress)
    saved = on_demand - spent
    percent = round(float(100 * saved / on_demand), 1) if on_demand else 0.0
    return {
        "currency": cost.CURRENCY,
        "spent": _money(spent),
        "forecast_total": _money(total),
        "planned_total": _money(plan.chosen.cost_p50),
        "on_demand_equivalent": _money(on_demand),
        "saved": _money(saved),
        "saved_percent": percent,
        "as_of": _seconds(now),
        "final": final,
    }


def fine_tuned_model(job: JobRow) -> str | None:
    """The name of the result, once there is one."""
    if job.state is not JobState.SUCCEEDED:
        return None
    suffix = job.request.get("suffix") or ""
    return f"ft:{job.model}:{job.project_id}:{suffix}:{job.id}"


def _forecast(
    job: JobRow,
    plan: Plan,
    attempts: list[AttemptRow],
    spent: Decimal,
    progress: tuple[int, int, float | None],
) -> Decimal:
    step, _, step_seconds = progress
    if step_seconds is None:
        return spent + plan.chosen.cost_p50
    hourly = attempts[-1].price.hourly if attempts else plan.chosen.price.hourly
    return cost.forecast(
        spent,
        remaining_steps=job.total_steps - step,
        seconds_per_step=step_seconds,
        nodes=plan.chosen.nodes,
        hourly=hourly,
    )


def _money(amount: Decimal) -> str:
    return str(amount.quantize(Decimal("0.0001")))


def _seconds(moment: datetime | None) -> int | None:
    return int(moment.timestamp()) if moment else None
