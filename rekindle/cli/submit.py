"""`rekindle submit`: a file and a model become a job."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rekindle.cli import job_view, submit_method, words
from rekindle.cli import submit_options as options
from rekindle.cli.choose import JOBS
from rekindle.cli.command import Cli
from rekindle.cli.submit_order import Order
from rekindle.cli.submit_preset import Start, shown
from rekindle.cli.submit_reinforcement import Grades
from rekindle.cli.submit_rewards import Rewards
from rekindle.cli.submit_speed import Speed
from rekindle.cli.submit_training import Checkpoints, Leash, Memory, Numbers
from rekindle.cli.terms import Limits
from rekindle.cli.trouble import ExitCode, Trouble
from rekindle.cli.upload import uploaded
from rekindle.cli.words import money, part

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]


def submit(
    cli: Cli,
    *,
    file: options.File,
    model: options.Model = None,
    start: Start,
    validation: options.Validation = None,
    suffix: options.Suffix = None,
    metadata: options.Metadata = None,
    method: options.HowToLearn = None,
    leash: Leash,
    numbers: Numbers,
    seed: options.Seed = None,
    checkpoints: Checkpoints,
    packing: options.Packing = False,
    memory: Memory,
    nodes: options.Nodes = None,
    min_nodes: options.MinNodes = None,
    limits: Limits,
    rewards: Rewards,
    grades: Grades,
    order: Order,
    speed: Speed,
    name: options.Name = None,
    watch: options.Watch = False,
) -> int | None:
    """Train MODEL on FILE. Shows what it will cost, and why there."""
    method = start.method(method)
    chosen = submit_method.method(method, numbers.hyperparameters(), **vars(leash))
    told: Json = {
        "model": model,
        "suffix": suffix,
        "seed": seed,
        "metadata": _pairs(metadata or []),
        "method": grades.beside(cli, method, rewards.beside(method, chosen)),
        "infrastructure": _set(nodes=nodes, elastic=_set(min_nodes=min_nodes) or None)
        | limits.members(datetime.now(UTC)),
        "training": _set(
            packing=submit_method.packing(method, wanted=packing),
            **numbers.members(),
            **checkpoints.members(),
            **memory.members(),
            **order.members(),
        )
        | speed.members(),
    }
    body = start.over(told, memory) | _files(cli, file, validation, same_once=name is not None)
    return _send(cli, body, name, start, watch=watch)


def taken_on(job: Json) -> "Iterator[RenderableType]":
    """The plan in a few lines, then the job's id and what to type next."""
    plan = part(job, "plan")
    if plan:
        yield from planned(plan)
    yield f"\n{job['id']}"
    yield job_view.next_steps(job)


def planned(plan: Mapping[str, Any]) -> "Iterator[RenderableType]":
    """Where it would run, what it would cost, and why there."""
    yield job_view.facts(list(_plan(plan)))
    warnings = (*plan.get("warnings", ()), *part(plan, "recipe").get("warnings", ()))
    for warning in dict.fromkeys(warnings):  # a plan repeats those of its recipe
        yield f"note: {words.safe(warning)}"


def _send(cli: Cli, body: Json, name: str | None, start: Start, *, watch: bool) -> int | None:
    key = name or f"cli-{uuid4().hex}"  # a repeat after a lost answer is no second job
    asked = {member: value for member, value in body.items() if value not in (None, {})}
    if start.dry_run:
        shown(cli, asked)
        return None
    job = cli.client.post(JOBS, asked, headers={"idempotency-key": key})
    if watch:
        return _watched(cli, job)
    cli.show(job, lambda: taken_on(job))
    return None


def _plan(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    unit = plan.get("currency", "USD")
    place = f"{plan.get('nodes')} x {plan.get('vm_size')} in {plan.get('region')}"
    hourly = money(plan.get("hourly"), unit)
    yield "machines", f"{place} ({plan.get('capacity_type')}, {hourly} an hour each)"
    yield "steps", f"{words.number(plan.get('total_steps'))} of {plan.get('global_batch')} examples"
    yield "data", job_view.counted(plan)
    yield (
        "duration",
        f"about {words.duration(plan.get('duration_p50'))}, "
        f"within {words.duration(plan.get('duration_p90'))} nine times in ten{_verifying(plan)}",
    )
    yield (
        "price",
        f"about {money(plan.get('cost_p50'), unit)}, "
        f"on demand {money(plan.get('on_demand_cost'), unit)}",
    )
    yield "why", words.safe(plan.get("why", ""))


def _verifying(plan: Mapping[str, Any]) -> str:
    """How much of it verifies the result; an older service does not say."""
    seconds = plan.get("verify_seconds")
    return f", {words.duration(seconds)} of it to verify the result" if seconds else ""


def _watched(cli: Cli, job: Json) -> int:
    from rekindle.cli.watch import follow

    if not cli.as_json:
        for piece in taken_on(job):
            cli.out.print(piece)
    return follow(cli, job["id"])


def _files(cli: Cli, training: str, validation: str | None, *, same_once: bool) -> Json:
    return {
        "training_file": uploaded(cli, training, same_once=same_once),
        "validation_file": uploaded(cli, validation, same_once=same_once) if validation else None,
    }


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


def _set(**members: object) -> Json:
    return {name: value for name, value in members.items() if value is not None}
