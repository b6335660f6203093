"""How the API shows a job: OpenAI's object with Rekindle's members."""

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, overload

from contract import integrations
from contract.methods import METHODS, Method
from service.api.schemas.jobs import Job, JobSummary
from service.db.jobs.job_facts import JobOverview, NewestCheckpoint
from service.db.jobs.jobs import JobRow
from service.domain import humanize
from service.domain.money import cost
from service.domain.money.storage_cost import HOURS_PER_MONTH
from service.domain.planning import forecast
from service.domain.planning.forecast import RemainingTime
from service.domain.queue.admission import BEAT, QueueStanding
from service.domain.reporting import status_message
from service.domain.reporting.progress import OF_A_STEP
from service.domain.reporting.status_message import StatusMessage
from service.domain.spot.capacity_backoff import RECHECK_INTERVAL
from service.domain.states import JOB_TERMINAL, OPENAI_STATUS, JobState
from service.operations.jobs import run_specs
from service.operations.models.models import full_name
from trainer.contract import Rung


def job_summary(overview: JobOverview, now: datetime) -> JobSummary:
    """Return a job as lists show it."""
    progress, machines = _progress(overview), overview.machines
    is_training = overview.job.state is JobState.RUNNING and machines.running > 0
    members = {
        "progress": {name: progress[name] for name in ("step", "total_steps", "percent")},
        "estimated_finish": _finish_times(overview.remaining_time, now)["p50"]
        if is_training
        else None,
        "attempts": _attempts(overview),
        "cost": {
            "spent": money(machines.spent + overview.storage.spent),
            "saved": money(machines.on_demand - machines.spent),
            "currency": cost.CURRENCY,
        },
    }
    return JobSummary(**_basic(overview) | members)


def job_detail(overview: JobOverview, now: datetime, accelerator: str) -> Job:
    """Return one job with progress, plan, cost and a summary of its attempts.

    ``accelerator``: "cuda" or "cpu", what jobs train on.
    """
    job = overview.job
    is_at_rest = job.state in JOB_TERMINAL or job.state is JobState.PAUSED
    path = f"/v1/fine_tuning/jobs/{job.id}"
    outlook = None if is_at_rest else _outlook(overview, now)
    members = _basic(overview, now) | {
        "estimated_finish": outlook and outlook["finish"] and outlook["finish"]["p50"],
        "progress": _progress(overview),
        "attempts": _attempts(overview),
        "latest_checkpoint": _checkpoint(overview.checkpoint),
        "checkpoint_interval": _interval(overview),
        "cost": costs(overview, now),
        "infrastructure": _terms(job),
        "forecast": outlook,
        "elastic": job.plan.get("elastic"),
        "rung": overview.rung,
        "deepspeed": _deepspeed(overview, accelerator),
        "plan": job.plan,
        "result": job.result,
        "links": {name: f"{path}/{name}" for name in _LINKS} | {"self": path},
    }
    return Job(**members)


def costs(overview: JobOverview, now: datetime) -> dict[str, Any]:
    """Return the cost so far, the forecast and the cost on demand, as decimal strings."""
    job, machines, storage = overview.job, overview.machines, overview.storage
    is_over = job.state in JOB_TERMINAL
    savings = machines.on_demand - machines.spent
    low, middle, high = _forecast(overview)
    budget = job.constraints.budget
    spent = machines.spent + storage.spent
    return {
        "currency": cost.CURRENCY,
        "spent": money(spent),
        "storage": money(storage.spent),
        "storage_a_month": money(storage.monthly),
        "forecast_total": money(middle),
        "forecast_low": money(low),
        "forecast_high": money(high),
        "budget": None if budget is None else money(budget),
        "budget_remaining": None if budget is None else money(budget - spent),
        "per_million_tokens": _per_million(job, spent),
        "planned_total": money(Decimal(job.plan["options"][0]["cost_p50"])),
        "on_demand_equivalent": money(machines.on_demand + storage.spent),
        "saved": money(savings),
        "saved_percent": round(float(100 * savings / machines.on_demand), 1)
        if machines.on_demand
        else 0.0,
        "as_of": seconds(now),
        "final": is_over and machines.is_final,
    }


def fine_tuned_model(job: JobRow) -> str | None:
    """Return the name of the final model, once there is one."""
    return full_name(job) if job.state is JobState.SUCCEEDED else None


def money(amount: Decimal) -> str:
    """Round to a hundredth of a cent."""
    return str(amount.quantize(Decimal("0.0001")))


@overload
def seconds(moment: datetime) -> int: ...
@overload
def seconds(moment: None) -> None: ...
@overload
def seconds(moment: datetime | None) -> int | None: ...
def seconds(moment: datetime | None) -> int | None:
    """Return Unix time, as OpenAI shows it."""
    return int(moment.timestamp()) if moment else None


_LINKS = ("events", "attempts", "checkpoints", "metrics", "logs", "cost", "storage", "model")


def _basic(overview: JobOverview, now: datetime | None = None) -> dict[str, Any]:
    """Return OpenAI's object with phase and reason; with ``now``, when it is reconciled next."""
    job = overview.job
    recipe, request = job.plan["recipe"], job.request
    names = ("batch_size", "learning_rate_multiplier", "n_epochs")
    hyper = {name: recipe[name] for name in names}
    status = status_message.status_message(overview.facts)
    return {
        "id": job.id,
        "object": "fine_tuning.job",
        "created_at": seconds(job.created_at),
        "error": job.error,
        "fine_tuned_model": fine_tuned_model(job),
        "finished_at": seconds(job.finished_at),
        "hyperparameters": hyper,
        "model": job.model,
        "organization_id": job.project_id,
        "result_files": [job.result_file] if job.result_file else [],
        "seed": request["seed"],
        "status": OPENAI_STATUS[job.state],
        "trained_tokens": job.trained_tokens,
        "training_file": job.training_file,
        "validation_file": job.validation_file,
        "integrations": integrations.to_openai(request.get("integrations")),
        "metadata": request.get("metadata"),
        "method": _method(hyper, recipe),
        "user_provided_suffix": request.get("suffix"),
        "started_at": seconds(job.started_at),
        "version": job.version,
        "updated_at": seconds(job.updated_at),
        "phase": status.phase,
        "status_reason": _reason(status, BEAT if overview.facts.queue else RECHECK_INTERVAL, now),
        "queue": _queue(overview.facts.queue, now),
    }


def _reason(status: StatusMessage, beat: timedelta, now: datetime | None) -> dict[str, Any]:
    """Return why the job is in its phase, since when, and when it tries for machines again."""
    next_try_at = status.next_try_at
    if now and status.since and not (next_try_at and next_try_at > now):
        next_try_at = now + beat
    return {
        "code": status.code,
        "message": status.message,
        "since": seconds(status.since),
        "next_try_at": seconds(next_try_at),
    }


def _queue(standing: QueueStanding | None, now: datetime | None) -> dict[str, Any] | None:
    """Return the job's position in the queue; null once it is admitted."""
    if standing is None:
        return None
    position = standing.position
    members = {
        "position": position,
        "ahead": None if position is None else position - 1,
        "code": standing.code,
        "reason": humanize.as_sentence(standing.why) if standing.why else None,
        "since": seconds(standing.since),
    }
    return members | {"next_try_at": seconds(now + BEAT)} if now else members


def _method(hyper: dict[str, Any], recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the method with every number; a stored plan without one is supervised."""
    method: Method = recipe.get("method", "supervised")
    if method == "reinforcement":
        options = _reinforcement(hyper, recipe, recipe["reinforcement"])
    else:
        fields = METHODS[method].options.kind_of_hyperparameters().model_fields
        own_options = _own_options(method, recipe)
        hyper = hyper | {name: value for name, value in own_options.items() if name in fields}
        other_options = {name: value for name, value in own_options.items() if name not in fields}
        options = {"hyperparameters": hyper} | other_options
    return {"type": method, method: options}


def _own_options(method: Method, recipe: dict[str, Any]) -> dict[str, Any]:
    """Return all options but OpenAI's three hyperparameters, by name."""
    if method == "reward":
        ranked = recipe.get("ranked")
        return {"loss": "ranked_margin", **ranked} if ranked else {"loss": "bradley_terry"}
    options: dict[str, Any] = recipe.get("dpo") or json.loads(recipe.get("method_options") or "{}")
    return options


def _reinforcement(
    hyper: dict[str, Any], recipe: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """Return OpenAI's members and Rekindle's, with every number."""
    members = {k: v for k, v in settings.items() if k not in ("grader", "replay_capacity")}
    openai_members = {
        "eval_interval": recipe["eval_steps"] or "auto",
        "reasoning_effort": "default",
    }
    grader = json.loads(settings["grader"])
    return {"grader": grader, "hyperparameters": hyper | openai_members, **members}


def _progress(overview: JobOverview) -> dict[str, Any]:
    job = overview.job
    step = job.progress.get("step", 0)
    metric_names = ("seconds_per_step", "tokens_per_second", *OF_A_STEP)
    return {
        "step": step,
        "total_steps": job.total_steps,
        "percent": round(100 * step / job.total_steps, 1),
        "epoch": round(job.plan["recipe"]["n_epochs"] * step / job.total_steps, 2),
        **{name: job.progress.get(name) for name in metric_names},
        "lost_steps": job.lost_steps,
    }


def _attempts(overview: JobOverview) -> dict[str, Any]:
    return {
        "count": overview.attempts,
        "current": overview.current_attempt,
        "evictions": overview.facts.evictions,
    }


def _interval(overview: JobOverview) -> dict[str, Any]:
    """Return the checkpoint interval of the newest generation, or of the plan."""
    chosen, progress = overview.job.plan["options"][0], overview.job.progress
    cadence = progress.get("save_by") or chosen["cadence"]
    return {
        "seconds": progress.get("save_every") or chosen["checkpoint_seconds"],
        "chosen_by": "planner" if cadence else "user",
        "evictions_per_hour": cadence and cadence["evictions_per_hour"],
        "notices_answered": cadence and cadence["answered"],
    }


def _deepspeed(overview: JobOverview, accelerator: str) -> dict[str, Any]:
    attempt = overview.facts.attempt
    rung = Rung.from_dict(overview.rung) if overview.rung else None
    nodes = attempt.members if attempt else 0
    world_size, config = run_specs.deepspeed_config(overview.job, nodes, rung, accelerator)
    return {"world_size": world_size, "config": config}


def _checkpoint(newest: NewestCheckpoint | None) -> dict[str, Any] | None:
    if newest is None:
        return None
    created = seconds(newest.committed_at)
    return {"id": newest.id, "step_number": newest.step, "created_at": created}


def _outlook(overview: JobOverview, now: datetime) -> dict[str, Any]:
    """Return when the job finishes and how likely it meets its deadline, or why unknown."""
    remaining, deadline = overview.finish, overview.job.constraints.deadline
    admission = overview.admission_forecast
    is_known = admission is None or admission.after is not None
    probability = (
        remaining.probability_within(forecast.seconds_until(deadline, now)) if deadline else None
    )
    return {
        "finish": _finish_times(remaining, now) if is_known else None,
        "meets_deadline": probability if is_known else None,
        "let_in": _finish_times(admission.after, now) if admission and admission.after else None,
        "unknown_because": admission.why if admission and not is_known else None,
    }


def _finish_times(remaining: RemainingTime, now: datetime) -> dict[str, int]:
    return {name: int(now.timestamp() + getattr(remaining, name)) for name in ("p10", "p50", "p90")}


def _terms(job: JobRow) -> dict[str, Any]:
    """Return the job's current limits of cost, time and region."""
    terms = job.constraints.as_dict()
    budget, max_price = terms["budget"], terms["max_price"]
    usd = {"currency": cost.CURRENCY}
    return {
        "budget": budget and {"amount": budget, "on_exhausted": terms["on_exhausted"], **usd},
        "deadline": terms["deadline"],
        "on_deadline_risk": terms["on_deadline_risk"],
        "max_price": max_price and {"per": "gpu_hour", "amount": max_price, **usd},
        "regions": terms["regions"] or None,
        "engine": terms["engine"],
        "priority": terms["priority"],
    }


def _forecast(overview: JobOverview) -> tuple[Decimal, Decimal, Decimal]:
    """Return the final cost at P10, P50 and P90; of a job that is over, all the same."""
    job, machines, storage = overview.job, overview.machines, overview.storage
    spent = machines.spent + storage.spent
    if job.state in JOB_TERMINAL:
        return spent, spent, spent
    chosen, remaining = job.plan["options"][0], overview.remaining_time
    hourly = Decimal(chosen["hourly"]) if machines.hourly is None else machines.hourly
    an_hour = hourly * (machines.running or chosen["nodes"]) + storage.monthly / HOURS_PER_MONTH
    low, middle, high = (
        spent + cost.cost_of(seconds=seconds, hourly=an_hour)
        for seconds in (remaining.p10, remaining.p50, remaining.p90)
    )
    return low, middle, high


def _per_million(job: JobRow, spent: Decimal) -> str | None:
    """Return US dollars for a million trained tokens; a repeated step counts once."""
    pace = (job.progress.get("tokens_per_second"), job.progress.get("seconds_per_step"))
    tokens = float(job.trained_tokens or 0)
    if not tokens and pace[0] and pace[1]:
        tokens = pace[0] * pace[1] * job.progress.get("step", 0)
    return money(1_000_000 * spent / Decimal(str(tokens))) if tokens else None
