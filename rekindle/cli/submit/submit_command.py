"""`rekindle submit`: create a job from a file, a model and options."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.files.upload import is_file_id, require_training_file, resolve_file_id
from rekindle.cli.formats import money, object_member
from rekindle.cli.job_lookup import JOBS
from rekindle.cli.jobs import views
from rekindle.cli.jobs.limits import LimitOptions
from rekindle.cli.submit import grader_file, job_config, options, request

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]


def submit_job(
    cli: Cli,
    *,
    file: options.File = None,
    validation: options.Validation = None,
    preset: options.Preset = None,
    member_options: options.MemberOptions,
    limits: LimitOptions,
    config: options.Config = None,
    settings: options.Settings = None,
    name: options.Name = None,
    dry_run: options.DryRun = False,
    watch: options.Watch = False,
) -> int | None:
    """Submit a job that trains a model on FILE; shows its plan and cost.

    Precedence: --set, then other options, then --config, then --preset.
    """
    body = build_body(
        cli,
        file=file,
        validation=validation,
        preset=preset,
        member_options=member_options,
        limits=limits,
        config=config,
        settings=settings,
    )
    has_plan = body.get("plan") is not None  # the plan already uploaded the file
    body = upload_files(cli, body, reuse=has_plan or name is not None)
    if dry_run:
        _print_plan(cli, body)
        return None
    return _create_job(cli, body, name, watch=watch)


def build_body(
    cli: Cli,
    *,
    file: str | None,
    validation: str | None,
    preset: str | None,
    member_options: options.MemberOptions,
    limits: LimitOptions,
    config: Path | None,
    settings: list[str] | None,
) -> Json:
    """Return the merged request, validated as far as possible without the service."""
    config_file = job_config.read_config(config)
    parsed_settings = [*map(job_config.parse_setting, settings or ())]
    other_members = {
        "training_file": file,
        "validation_file": validation,
        "metadata": _parse_pairs(member_options.metadata or []) or None,
        "infrastructure": limits.members(datetime.now(UTC)) or None,
    }
    body = request.build_request(
        preset,
        config_file,
        member_options,
        job_config.without_nulls(other_members),
        parsed_settings,
    )
    job_config.check_body(body, config_file, parsed_settings)
    for member in job_config.FILES:
        if (name := body.get(member)) and not is_file_id(name):
            require_training_file(Path(name))
    grader_file.validate_grader(cli, body, member_options.grader)
    return body


def upload_files(cli: Cli, body: Json, *, reuse: bool) -> Json:
    """Upload files and put their ids into the body; ``reuse`` reuses an earlier upload."""
    files = [member for member in job_config.FILES if body.get(member)]
    return body | {m: resolve_file_id(cli, body[m], reuse=reuse) for m in files}


def submission_lines(job: Json) -> "Iterator[RenderableType]":
    """Yield the plan, the job's id and the next commands."""
    plan = object_member(job, "plan")
    if plan:
        yield from plan_lines(plan)
    yield f"\n{job['id']}"
    yield views.next_steps(job)


def plan_lines(plan: Mapping[str, Any]) -> "Iterator[RenderableType]":
    """Yield machines, cost, reason and warnings of a plan."""
    yield views.facts_table(list(_plan_facts(plan)))
    warnings = (*plan.get("warnings", ()), *object_member(plan, "recipe").get("warnings", ()))
    for warning in dict.fromkeys(warnings):  # the plan repeats its recipe's warnings
        yield f"note: {formats.printable_line(warning)}"


def _create_job(cli: Cli, body: Json, name: str | None, *, watch: bool) -> int | None:
    key = name or f"cli-{uuid4().hex}"  # a retry creates no second job
    job = cli.client.post(JOBS, body, headers={"idempotency-key": key})
    if watch:
        return _watch_created_job(cli, job)
    cli.print_result(job, lambda: submission_lines(job))
    return None


def _plan_facts(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    unit = plan.get("currency", "USD")
    machines = f"{plan.get('nodes')} x {plan.get('vm_size')} in {plan.get('region')}"
    hourly = money(plan.get("hourly"), unit)
    yield "machines", f"{machines} ({views.capacity_label(plan)}, {hourly} per hour each)"
    batch = formats.count(plan.get("global_batch", 0), "example")
    yield "steps", f"{formats.number(plan.get('total_steps'))} of {batch}"
    yield "data", views.data_counts(plan)
    yield (
        "duration",
        f"about {formats.duration(plan.get('duration_p50'))}, "
        f"90 % within {formats.duration(plan.get('duration_p90'))}{_verification_note(plan)}",
    )
    yield (
        "price",
        f"about {money(plan.get('cost_p50'), unit)}, "
        f"on demand {money(plan.get('on_demand_cost'), unit)}",
    )
    yield "why", formats.printable_line(plan.get("why", ""))


def _verification_note(plan: Mapping[str, Any]) -> str:
    """Return how much of the duration verifies the result; older services do not say."""
    seconds = plan.get("verify_seconds")
    return f", {formats.duration(seconds)} of it to verify the result" if seconds else ""


def _watch_created_job(cli: Cli, job: Json) -> int:
    from rekindle.cli.jobs.watch import follow_job

    if not cli.as_json:
        for piece in submission_lines(job):
            cli.out.print(piece)
    return follow_job(cli, job["id"])


def _print_plan(cli: Cli, body: Json) -> None:
    """Print the request, then its plan as comments, so that --config accepts the output."""
    plan = cli.client.post(f"{JOBS}?dry_run=true", body)["plan"]
    document = {"object": "plan", "request": body, "plan": plan}
    cli.print_result(
        document, lambda: [json.dumps(body, indent=2), *_as_comments(cli, plan_lines(plan))]
    )


def _as_comments(cli: Cli, pieces: "Iterable[RenderableType]") -> Iterator[str]:
    with cli.out.capture() as captured:
        for piece in pieces:
            cli.out.print(piece)
    for line in captured.get().splitlines():
        yield f"# {line}".rstrip()


def _parse_pairs(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise CliError(
                f"--metadata {text!r} is not a KEY=VALUE pair.",
                "Write it as KEY=VALUE, for example team=search.",
                exit_code=ExitCode.USAGE,
                code="bad_metadata",
            )
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}
