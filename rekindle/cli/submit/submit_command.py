"""`rekindle submit`: a file and a model become a job."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.files.upload import require, uploaded
from rekindle.cli.formats import money, part
from rekindle.cli.job_lookup import JOBS
from rekindle.cli.jobs import views
from rekindle.cli.jobs.terms import Limits
from rekindle.cli.submit import grader_file, job_config, options, request

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]


def submit(
    cli: Cli,
    *,
    file: options.File = None,
    validation: options.Validation = None,
    preset: options.Preset = None,
    named: options.Named,
    limits: Limits,
    config: options.Config = None,
    settings: options.Settings = None,
    name: options.Name = None,
    dry_run: options.DryRun = False,
    watch: options.Watch = False,
) -> int | None:
    """Train a model on FILE. Shows what it will cost, and why there.

    --set wins over the other options, these over --config, and --config over --preset.
    """
    body = checked(
        cli,
        file=file,
        validation=validation,
        preset=preset,
        named=named,
        limits=limits,
        config=config,
        settings=settings,
    )
    planned_before = body.get("plan") is not None  # of the same file
    body = with_uploads(cli, body, same_once=planned_before or name is not None)
    if dry_run:
        _show_plan(cli, body)
        return None
    return _send(cli, body, name, watch=watch)


def checked(
    cli: Cli,
    *,
    file: str | None,
    validation: str | None,
    preset: str | None,
    named: options.Named,
    limits: Limits,
    config: Path | None,
    settings: list[str] | None,
) -> Json:
    """The request that these layers make, checked as far as the service is not needed for it."""
    read, sets = job_config.read_config(config), [*map(job_config.parse_setting, settings or ())]
    own = {
        "training_file": file,
        "validation_file": validation,
        "metadata": _pairs(named.metadata or []) or None,
        "infrastructure": limits.members(datetime.now(UTC)) or None,
    }
    body = request.request(preset, read, named, job_config.without_nulls(own), sets)
    job_config.check(body, read, sets)
    paths = [Path(body[each]) for each in job_config.FILES if not _is_upload(body.get(each))]
    for path in paths:
        require(path)
    grader_file.validate_grader(cli, body, named.grader)
    return body


def with_uploads(cli: Cli, body: Json, *, same_once: bool) -> Json:
    """The same with ids of files in place of paths; ``same_once``: as an upload before it."""
    files = [member for member in job_config.FILES if member in body]
    return body | {m: uploaded(cli, body[m], same_once=same_once) for m in files}


def taken_on(job: Json) -> "Iterator[RenderableType]":
    """The plan in a few lines, then the job's id and what to type next."""
    plan = part(job, "plan")
    if plan:
        yield from planned(plan)
    yield f"\n{job['id']}"
    yield views.next_steps(job)


def planned(plan: Mapping[str, Any]) -> "Iterator[RenderableType]":
    """Where it would run, what it would cost, and why there."""
    yield views.facts(list(_plan(plan)))
    warnings = (*plan.get("warnings", ()), *part(plan, "recipe").get("warnings", ()))
    for warning in dict.fromkeys(warnings):  # a plan repeats those of its recipe
        yield f"note: {formats.safe(warning)}"


def _send(cli: Cli, body: Json, name: str | None, *, watch: bool) -> int | None:
    key = name or f"cli-{uuid4().hex}"  # a repeat after a lost answer is no second job
    job = cli.client.post(JOBS, body, headers={"idempotency-key": key})
    if watch:
        return _watched(cli, job)
    cli.show(job, lambda: taken_on(job))
    return None


def _plan(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    unit = plan.get("currency", "USD")
    place = f"{plan.get('nodes')} x {plan.get('vm_size')} in {plan.get('region')}"
    hourly = money(plan.get("hourly"), unit)
    yield "machines", f"{place} ({views.bought(plan)}, {hourly} an hour each)"
    batch = formats.count(plan.get("global_batch", 0), "example")
    yield "steps", f"{formats.number(plan.get('total_steps'))} of {batch}"
    yield "data", views.counted(plan)
    yield (
        "duration",
        f"about {formats.duration(plan.get('duration_p50'))}, "
        f"within {formats.duration(plan.get('duration_p90'))} nine times in ten{_verifying(plan)}",
    )
    yield (
        "price",
        f"about {money(plan.get('cost_p50'), unit)}, "
        f"on demand {money(plan.get('on_demand_cost'), unit)}",
    )
    yield "why", formats.safe(plan.get("why", ""))


def _verifying(plan: Mapping[str, Any]) -> str:
    """How much of it verifies the result; an older service does not say."""
    seconds = plan.get("verify_seconds")
    return f", {formats.duration(seconds)} of it to verify the result" if seconds else ""


def _watched(cli: Cli, job: Json) -> int:
    from rekindle.cli.jobs.watch import follow

    if not cli.as_json:
        for piece in taken_on(job):
            cli.out.print(piece)
    return follow(cli, job["id"])


def _show_plan(cli: Cli, body: Json) -> None:
    """The request, then the service's plan of it in comments: --config takes both as they are."""
    plan = cli.client.post(f"{JOBS}?dry_run=true", body)["plan"]
    document = {"object": "plan", "request": body, "plan": plan}
    cli.show(document, lambda: [json.dumps(body, indent=2), *_comments(cli, planned(plan))])


def _comments(cli: Cli, pieces: "Iterable[RenderableType]") -> Iterator[str]:
    with cli.out.capture() as captured:
        for piece in pieces:
            cli.out.print(piece)
    for line in captured.get().splitlines():
        yield f"# {line}".rstrip()


def _is_upload(named: object) -> bool:
    return named is None or (str(named).startswith("file-") and not Path(str(named)).exists())


def _pairs(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise Trouble(
                f"--metadata {text!r} is no pair.",
                "Write it as KEY=VALUE.",
                exit_code=ExitCode.USAGE,
                code="bad_metadata",
            )
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}
