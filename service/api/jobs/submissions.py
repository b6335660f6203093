"""Turn a request to create a job into its files, models and plan, or refuse it."""

import json
import secrets
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from contract.integrations import IntegrationRequest, MlflowRequest
from contract.job import JobRequest
from service import tracing
from service.api.deps import Parts
from service.api.jobs import submission_files
from service.api.jobs.job_requests import (
    hyperparameters_of,
    method_of,
    sources_of,
    terms_of,
    training_of,
    with_default_precision,
)
from service.db.files.files import File
from service.db.jobs import step_times
from service.db.jobs.jobs import JobRow
from service.db.projects.keys import Caller
from service.db.spot import market
from service.domain.errors import FileJustDeleted, InvalidRequest, Unsupported
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.models import base_models, lineage
from service.domain.models.base_models import SupportedModel
from service.domain.performance.calibration import MeasuredJob
from service.domain.placement.offering_choice import gpus_per_machine
from service.domain.planning import feasibility
from service.domain.planning.plan import Plan, make_plan
from service.domain.planning.plan_limits import PlanLimits
from service.domain.planning.plan_request import Accelerator, Offer, PlanRequest
from service.domain.spot.capacity_traces import spot_pool_of
from service.domain.spot.market import eviction_prior
from service.domain.training import preflight
from service.domain.training.preflight import DataCounts
from service.domain.training.recipe import resolve
from service.operations.jobs import jobs, plans
from service.operations.jobs.jobs import RequestIdentity, Submission, Submitted
from service.operations.jobs.preflights import Checked, RunningCheck, row_checks
from service.operations.models import bases, models
from service.operations.models.bases import Basis

PLAN_WAIT_SECONDS = 5.0  # for a check of the rows
NO_REGISTRY = (
    "This deployment has no Azure ML workspace to register models in. Leave register_model out; "
    "the model is in Blob Storage either way."
)
NO_TRACKER = {
    "wandb": "This deployment has no key of Weights & Biases: its operator sets "
    "REKINDLE_WANDB_API_KEY and installs the package wandb.",
    "mlflow": "This deployment has no MLflow server: its operator sets "
    "REKINDLE_MLFLOW_TRACKING_URI.",
}
ESTIMATED = (
    "The rows are still being checked, so their lengths are estimates. Request the plan again "
    "later for exact numbers."
)


async def plan_submission(
    parts: Parts, identity: RequestIdentity, request: JobRequest
) -> Submission:
    """Return the submission of a request that only asks for a plan.

    A base model that is not staged is planned by its architecture. With a staged one, the rows are
    checked for a few seconds.
    """
    supported = base_models.lookup(request.model)
    if supported is None or await models.find_base_model(parts.storage.store, supported.name):
        return await prepare_submission(parts, identity, request, wait=PLAN_WAIT_SECONDS)
    return await prepare_submission(parts, identity, request, unstaged=supported)


async def replan_job(parts: Parts, row: JobRow, plan: Plan, checked: Checked) -> Plan:
    """Plan a job again with its counted rows.

    The number of nodes stays as it was shown, unless a deadline chooses it.
    """
    if plan.data == DataCounts.of(checked.training):
        return plan
    caller = Caller(project_id=row.project_id, api_key_id=row.api_key_id)
    request = JobRequest.model_validate_json(json.dumps(row.request))
    inputs = await _find_inputs(parts, caller, request, None)
    nodes = plan.chosen.nodes if terms_of(request).deadline is None else None
    plan_request = await _plan_request(parts, caller, request, inputs, checked=checked, nodes=nodes)
    return _plan(plan_request, inputs, checked, parts.now())


async def create_job(
    parts: Parts, identity: RequestIdentity, request: JobRequest, now: datetime
) -> Submitted:
    """Create the job of a request, or return the one that it created before."""
    if not identity.is_first:
        async with parts.reading.connect() as conn:
            if (earlier := await jobs.find_earlier(conn, identity, now)) is not None:
                return Submitted(job=earlier, is_new=False)
    try:
        return await _submit(parts, await prepare_submission(parts, identity, request), now)
    except FileJustDeleted:
        file_ids = (request.training_file, request.validation_file)
        files = [submission_files.cache_key(identity.caller, file_id) for file_id in file_ids]
        was_cached = [parts.plan_inputs.forget(file) for file in files]
        if not any(was_cached):
            raise
    return await _submit(parts, await prepare_submission(parts, identity, request), now)


async def _submit(parts: Parts, submission: Submission, now: datetime) -> Submitted:
    async with parts.engine.begin() as conn:
        submitted = await jobs.submit(conn, submission, now)
    if submitted.is_new:
        tracing.record_submission(submitted.job.id, now, parts.now())
    return submitted


async def prepare_submission(
    parts: Parts,
    identity: RequestIdentity,
    request: JobRequest,
    *,
    unstaged: SupportedModel | None = None,
    wait: float = 0.0,
) -> Submission:
    """Return the checked request with its plan; raises InvalidRequest or Archived.

    Rows that were checked before are counted exactly. With ``wait`` they are checked now, for at
    most that many seconds, and refused where a job cannot train on them.
    """
    request = with_default_precision(request, parts.plan_defaults.accelerator)
    if request.register_model and not parts.registers_models:
        raise Unsupported(NO_REGISTRY, param="register_model")
    _require_trackers(parts, request)
    inputs = await _find_inputs(parts, identity.caller, request, unstaged)
    await parts.graders.check_sources(sources_of(request))
    checked = None if unstaged else await _check_rows(parts, request, inputs, wait)
    plan, plan_request = await _stored_plan(parts, identity.caller, request), None
    if plan is None:
        plan_request = await _plan_request(parts, identity.caller, request, inputs, checked=checked)
        plan = _plan(plan_request, inputs, checked, parts.now())
    if unstaged:
        plan = replace(plan, warnings=(*plan.warnings, _staging_warning(unstaged)))
    elif wait and checked is None:
        plan = replace(plan, warnings=(*plan.warnings, ESTIMATED))
    return Submission(
        identity=identity,
        request=request.model_dump(mode="json") | _deployment_defaults(parts, request),
        model=inputs.base.name,
        training_file=inputs.training,
        validation_file=inputs.validation,
        plan=plan,
        terms=terms_of(request),
        planned=plan_request,
    )


def _require_trackers(parts: Parts, request: JobRequest) -> None:
    """Refuse trackers that the deployment lacks."""
    for number, integration in enumerate(request.integrations or ()):
        if integration.type not in parts.trackers:
            param = f"integrations.{number}.type"
            raise Unsupported(NO_TRACKER[integration.type], param=param)


def _deployment_defaults(parts: Parts, request: JobRequest) -> dict[str, Any]:
    """Return what the deployment adds to a request: a seed, and its MLflow experiment."""
    added: dict[str, Any] = {"seed": _seed(request)}
    integrations = request.integrations or []
    if parts.mlflow_experiment and all(
        integration.type != "mlflow" for integration in integrations
    ):
        mlflow = MlflowRequest(experiment=parts.mlflow_experiment)
        all_integrations = [*integrations, IntegrationRequest(type="mlflow", mlflow=mlflow)]
        added["integrations"] = [
            integration.model_dump(mode="json") for integration in all_integrations
        ]
    return added


async def _stored_plan(parts: Parts, caller: Caller, request: JobRequest) -> Plan | None:
    """Return the plan that the request names, or None."""
    if request.plan is None:
        return None
    async with parts.reading.connect() as conn:
        body = request.model_dump(mode="json")
        row = await plans.require_matching_plan(conn, caller.project_id, body, parts.now())
    plan, now = row.parsed_plan, parts.now()
    limits = PlanLimits.of(terms_of(request), parts.allowance, now)
    feasibility.refuse_infeasible(plan, limits, now, lambda: None)  # time has passed since
    return plan


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """The files and models of a job."""

    training: File
    validation: File | None
    base: Basis
    judge: Basis | None


async def _find_inputs(
    parts: Parts, caller: Caller, request: JobRequest, unstaged: SupportedModel | None
) -> _Inputs:
    training, validation = await submission_files.find_files(parts, caller, request)
    base, judge = await _find_models(parts, caller, request, training, unstaged)
    return _Inputs(training=training, validation=validation, base=base, judge=judge)


def _seed(request: JobRequest) -> int:
    return secrets.randbelow(2**31) if request.seed is None else request.seed


def _staging_warning(model: SupportedModel) -> str:
    return (
        f"{model.name} is not staged yet: the plan takes its shape from the catalogue. Stage it "
        f"before you create a job: python -m rekindle.stage --name {model.name} DIR. Check that "
        f"its licence, {model.licence}, allows your use."
    )


async def _find_models(
    parts: Parts,
    caller: Caller,
    request: JobRequest,
    training: File,
    unstaged: SupportedModel | None,
) -> tuple[Basis, Basis | None]:
    """Return the base model and the grader's model; raises InvalidRequest or Archived."""
    base = (
        bases.unstaged_basis(unstaged)
        if unstaged
        else await find_base_model(parts, caller, request.model)
    )
    if base.method is not None:
        lineage.refuse_other_head(base.name, base.method, method_of(request))
    if base.method == "classification":
        lineage.refuse_other_labels(base.name, base.labels, training.labels)
    judge_name = lineage.judge(training_of(request).reinforcement)
    if judge_name is None:
        return base, None
    if not lineage.is_made(judge_name):
        lineage.refuse_no_judge(judge_name, None)
    lineage.refuse_checkpoint_as_judge(judge_name)
    judge = await find_base_model(parts, caller, judge_name, lineage.OF_GRADER)
    lineage.refuse_no_judge(judge.name, judge.method)
    return base, judge


async def find_base_model(
    parts: Parts, caller: Caller, name: str, param: str = lineage.OF_BASE
) -> Basis:
    """Return a base model from the cache; models of jobs are looked up each time."""
    find = partial(
        bases.find_readable_basis, parts.engine, parts.storage, caller.project_id, name, param
    )
    return (
        await find() if lineage.is_made(name) else await parts.plan_inputs.get(("base", name), find)
    )


async def _plan_request(
    parts: Parts,
    caller: Caller,
    request: JobRequest,
    inputs: _Inputs,
    *,
    checked: Checked | None,
    nodes: int | None = None,
) -> PlanRequest:
    """Return the request for a plan: everything that the plan depends on."""
    training, validation = inputs.training, inputs.validation
    base, judge = inputs.base, inputs.judge
    data = checked.training if checked else None
    defaults, elastic = parts.plan_defaults, request.infrastructure.elastic
    answers = max(2, training.answers, validation.answers if validation else 0)
    accelerator: Accelerator = "cpu" if defaults.accelerator == "cpu" else "cuda"
    terms = terms_of(request)
    return PlanRequest(
        arch=base.staged.arch,
        judge=judge.staged.arch if judge else None,
        hyperparameters=hyperparameters_of(request),
        training=replace(
            training_of(request),
            answers=answers,
            split_answers=checked is not None and checked.splits_answers,
        ),
        examples=data.examples if data else training.examples,
        mean_tokens=-(-data.tokens // data.examples) if data else training.mean_tokens,
        data=data,
        offers=_mark_forbidden(
            await parts.plan_inputs.get("offers", partial(_read_offers, parts)), terms
        ),
        nodes=request.infrastructure.nodes or nodes,
        min_nodes=elastic.min_nodes if elastic else None,
        processes_per_node=defaults.processes_per_node,
        accelerator=accelerator,
        cpu_flops=defaults.cpu_flops,
        emulated=defaults.is_emulated,
        recovery_seconds=defaults.recovery_seconds,
        model=base.name,
        past=await _list_past_jobs(parts, caller),
        longest=() if data else tuple(tokens for _, tokens in training.longest),
        limits=PlanLimits.of(terms, parts.allowance, parts.now()),
    )


def _plan(request: PlanRequest, inputs: _Inputs, checked: Checked | None, now: datetime) -> Plan:
    """Return the plan; raises InvalidRequest where the model or its limits cannot fit."""
    plan = make_plan(request)
    feasibility.refuse_infeasible(
        plan, request.limits, now, partial(_replan_with_free_nodes, request)
    )
    if checked is None:
        return plan
    reasons = preflight.sentences((inputs.training.filename, checked.training))
    if inputs.validation and checked.validation:
        reasons += preflight.sentences((inputs.validation.filename, checked.validation))
    return replace(plan, warnings=(*plan.warnings, *reasons))


async def _check_rows(
    parts: Parts, request: JobRequest, inputs: _Inputs, wait: float
) -> Checked | None:
    """Return the reports on the rows, or None while there are none.

    With ``wait`` rows that a job cannot train on are refused.
    """
    training, staged = inputs.training, inputs.base.staged
    hyper, chosen = hyperparameters_of(request), training_of(request)
    recipe = resolve(hyper, chosen, examples=training.examples, arch=staged.arch)
    today = parts.now().date()
    checks = row_checks(training, inputs.validation, staged.model, recipe, today)
    if not wait:
        return await parts.preflights.find_reports(checks)
    reports = await parts.preflights.check_rows(checks, wait)
    if isinstance(reports, RunningCheck):
        return None
    preflight.refuse_untrainable(training.filename, reports.training, param="training_file")
    return reports


async def _list_past_jobs(parts: Parts, caller: Caller) -> tuple[MeasuredJob, ...]:
    """Return the measured jobs of the project."""

    async def read() -> tuple[MeasuredJob, ...]:
        async with parts.reading.connect() as conn:
            return await step_times.recent(conn, caller.project_id)

    return await parts.plan_inputs.get(("past", caller.project_id), read)


async def _read_offers(parts: Parts) -> tuple[Offer, ...]:
    """Return every offering of the deployment with its price and eviction rate."""
    defaults = parts.plan_defaults
    async with parts.reading.connect() as conn:
        bands = await market.bands(conn, map(spot_pool_of, defaults.offerings))
    prices = await parts.prices.prices(list(defaults.offerings))
    offers = []
    for offering in defaults.offerings:
        prior = eviction_prior(bands.get(spot_pool_of(offering)), defaults.hazard_per_hour)
        offer = Offer(
            offering=offering,
            price=prices.get(offering),
            evictions_per_hour=prior.per_hour,
            evictions_from=prior.source,
        )
        offers.append(offer)
    return tuple(offers)


def _mark_forbidden(offers: tuple[Offer, ...], terms: JobConstraints) -> tuple[Offer, ...]:
    """Return the offers, with the reason on each that the request's limits forbid."""
    forbids = terms.forbids
    reasons = [forbids(o.offering, o.price, gpus_per_machine(o.offering.vm_size)) for o in offers]
    return tuple(
        replace(offer, forbidden=reason) if reason else offer
        for offer, reason in zip(offers, reasons, strict=True)
    )


def _replan_with_free_nodes(request: PlanRequest) -> Plan | None:
    """Return the plan with nodes left to the planner, if the user fixed them and it fits."""
    if request.nodes is None:
        return None
    try:
        return make_plan(replace(request, nodes=None, min_nodes=None))
    except InvalidRequest:
        return None
