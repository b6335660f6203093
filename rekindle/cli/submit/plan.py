"""`rekindle plan`: cost, duration and memory of a job before it is created."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.formats import money
from rekindle.cli.jobs import views
from rekindle.cli.jobs.limits import LimitOptions
from rekindle.cli.submit import options, submit_command
from rekindle.cli.tables import new_table

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]
PLANS = "/fine_tuning/plans"
_GIB = 2**30
_MEMORY = (
    *("parameters", "gradients", "optimizer", "activations", "logits", "update"),
    *("buffers", "runtime", "cache"),
)


def plan_job(
    cli: Cli,
    *,
    file: options.File = None,
    validation: options.Validation = None,
    preset: options.Preset = None,
    member_options: options.MemberOptions,
    limits: LimitOptions,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """Plan a job: placement, duration, cost, memory, and cheaper or faster alternatives.

    Creates no job. The plan is kept for a day; use it: `rekindle submit ... --set plan=ID`.
    """
    body = submit_command.build_body(
        cli,
        file=file,
        validation=validation,
        preset=preset,
        member_options=member_options,
        limits=limits,
        config=config,
        settings=settings,
    )
    plan = cli.client.post(PLANS, submit_command.upload_files(cli, body, reuse=True))
    cli.print_result(plan, lambda: _plan_view(plan))


def _plan_view(plan: Json) -> "Iterator[RenderableType]":
    details = plan["plan"]
    yield views.facts_table([("steps", _steps(details)), ("data", views.data_counts(details))])
    yield _placement_table([plan["chosen"], *plan["next"]])
    yield views.facts_table(
        [("memory", _memory_summary(plan["chosen"]["memory"])), ("why", details["why"])]
    )
    for suggestion in plan["suggestions"]:
        yield _suggestion_line(suggestion)
    for warning in dict.fromkeys(details["warnings"]):
        yield f"note: {formats.printable_line(warning)}"
    yield f"\n{plan['id']}, kept until {formats.local_time(plan['expires_at'], day=True)}"
    yield f"Next: same command with `submit` instead of `plan`, and --set plan={plan['id']}"


def _steps(details: Mapping[str, Any]) -> str:
    steps, batch = details["total_steps"], details["global_batch"]
    return f"{formats.number(steps)} of {formats.count(batch, 'example')}"


def _placement_table(placements: list[Json]) -> "RenderableType":
    table = new_table("", "machines", "time", "9 of 10", "cost", "9 of 10", "evictions")
    for number, placement in enumerate(placements):
        machines = f"{placement['nodes']} x {placement['vm_size']} in {placement['region']}"
        table.add_row(
            "chosen" if number == 0 else f"then {number}",
            f"{machines} ({views.capacity_label(placement)})",
            formats.duration(placement["duration_p50"]),
            formats.duration(placement["duration_p90"]),
            money(placement["cost_p50"], "USD"),
            money(placement["cost_p90"], "USD"),
            f"{placement['expected_evictions']:.1f}",
        )
    return table


def _memory_summary(memory: Mapping[str, int]) -> str:
    """Return GPU memory in GiB by use; uses below 0.01 GiB are left out."""
    parts = [(name, memory.get(name, 0) / _GIB) for name in _MEMORY]
    uses = [f"{name} {size:.2f}" for name, size in parts if size >= 0.01]
    return f"{memory['needed'] / _GIB:.2f} GiB per GPU: {', '.join(uses)}"


def _suggestion_line(suggestion: Mapping[str, Any]) -> str:
    cost, time = money(suggestion["cost_p50"], "USD"), formats.duration(suggestion["duration_p50"])
    change = formats.printable_line(suggestion["change"])
    return f"{suggestion['aim']}: {cost} and {time} with {change}"
