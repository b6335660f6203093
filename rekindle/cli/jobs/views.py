"""Render a job, a list of jobs, and a job's cost for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rekindle.cli import formats
from rekindle.cli.formats import DASH, money, object_member
from rekindle.cli.tables import new_table

Json = Mapping[str, Any]
_MIN_PHASE_SECONDS = 0.1  # seconds; shorter phases of an attempt are not shown


def jobs_table(jobs: Sequence[Json], now: float) -> Table:
    """Return a table with one job per row, newest first."""
    numbers = ("steps", "spent", "age")
    columns = ("job", "status", "model", *numbers)
    table = new_table(*columns, right=numbers, no_wrap=("job", *numbers))
    for job in jobs:
        status = str(job.get("status", DASH))
        position = object_member(job, "queue").get("position")
        name = str(job.get("model", DASH))
        suffix = job.get("user_provided_suffix")
        table.add_row(
            str(job["id"]),
            Text(f"{status} ({position})" if position else status, formats.STYLES.get(status, "")),
            Text(formats.printable_line(f"{name} ({suffix})" if suffix else name)),
            step_counts(job),
            amount_spent(job),
            formats.duration(now - job["created_at"]),
        )
    return table


def step_counts(job: Json) -> str:
    """Return the steps done and in total, such as `40/140`."""
    progress = object_member(job, "progress")
    if not progress.get("total_steps"):
        return DASH
    return f"{progress.get('step', 0):,}/{progress['total_steps']:,}"


def amount_spent(job: Json) -> str:
    """Return the cost so far."""
    cost = object_member(job, "cost")
    return money(cost.get("spent"), cost.get("currency", "USD"))


def job_details(job: Json, attempts: Sequence[Json], now: float) -> Iterator[RenderableType]:
    """Yield all that `rekindle show` prints about a job."""
    yield job_heading(job)
    yield facts_table(list(_job_facts(job, now)))
    if attempts:
        yield attempts_table(attempts, object_member(job, "cost").get("currency", "USD"))
        if attempts[-1].get("timeline"):
            yield timeline_table(attempts[-1])
    yield next_steps(job)


def job_heading(job: Json) -> Text:
    """Return the job's id and phase."""
    status = str(job.get("status", ""))
    style = formats.STYLES.get(status, "bold")
    return Text.assemble((str(job["id"]), "bold"), "  ", (formats.phase(job), style))


def facts_table(facts: Sequence[tuple[str, str]]) -> Table:
    """Return a two-column table of names and values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    return table


def attempts_table(attempts: Sequence[Json], currency: object) -> Table:
    """Return a table of attempts: machines, steps, steps lost, cost, and how each ended."""
    numbers = ("steps", "lost", "cost")
    columns = ("#", "where", *numbers, "outcome")
    table = new_table(*columns, right=numbers, no_wrap=numbers, title="Attempts")
    for a in attempts:
        machine = f"{a.get('nodes')} x {a.get('sku')} in {a.get('region')} ({a.get('capacity')})"
        ended = str(a.get("outcome") or a.get("state") or DASH)
        reason = a.get("reason")
        cost = money(a.get("cost"), currency)
        row = (str(a.get("number", "")), machine, attempt_steps(a), str(a.get("lost_steps", 0)))
        table.add_row(*row, cost, Text(f"{ended}: {reason}" if reason else ended))
    return table


def timeline_table(attempt: Json) -> Table:
    """Return the time that each phase of an attempt took; phases overlap, so they do not add up."""
    table = Table.grid(padding=(0, 2))
    table.title, table.title_justify = f"Time of attempt {attempt.get('number')}", "left"
    table.add_column(justify="right", no_wrap=True)
    for phase in attempt["timeline"]:
        open_ended = phase.get("ended_at") is None
        seconds = phase.get("seconds") or 0.0
        if seconds < _MIN_PHASE_SECONDS and not open_ended:
            continue
        took = "now" if open_ended else f"{formats.number(seconds, 1)} s"
        table.add_row(
            took, Text(formats.printable_line(phase.get("title") or phase.get("name", "")))
        )
    return table


def attempt_steps(attempt: Json) -> str:
    """Return the range of steps, such as `40 to 96`; a dash if no step was done."""
    first, last = attempt.get("from_step"), attempt.get("last_step")
    return DASH if first is None or last is None else f"{first:,} to {last:,}"


def cost_details(cost: Json, attempts: Sequence[Json]) -> Iterator[RenderableType]:
    """Yield the cost of a job and the table of its attempts."""
    unit = cost.get("currency", "USD")
    final = "final: all machines are deleted" if cost.get("final") else "so far"
    pairs = [
        ("spent", f"{money(cost.get('spent'), unit)} ({final})"),
        ("storage (included)", _storage_cost(cost)),
        ("forecast", _forecast_range(cost)),
        *_budget_facts(cost),
        ("planned", money(cost.get("planned_total"), unit)),
        (
            "on demand",
            f"{money(cost.get('on_demand_equivalent'), unit)} for the same machine hours",
        ),
        ("saved", amount_saved(cost)),
        ("per million tokens", money(cost.get("per_million_tokens"), unit)),
        ("as of", formats.local_time(cost.get("as_of"), day=True)),
    ]
    yield facts_table(pairs)
    if attempts:
        yield attempts_table(attempts, unit)


def limit_facts(job: Json) -> Iterator[tuple[str, str]]:
    """Yield budget, deadline and other limits that the job has."""
    infrastructure, forecast = object_member(job, "infrastructure"), object_member(job, "forecast")
    yield from _budget_facts(
        object_member(job, "cost"), object_member(infrastructure, "budget").get("on_exhausted")
    )
    if infrastructure.get("deadline"):
        probability = forecast.get("meets_deadline")
        likely = (
            f", {100 * probability:.0f} % likely to be met"
            if isinstance(probability, int | float)
            else ""
        )
        yield "deadline", f"{formats.local_time(infrastructure['deadline'], day=True)}{likely}"
    if most := object_member(infrastructure, "max_price").get("amount"):
        yield "max price", f"{money(most)} per GPU-hour"
    if infrastructure.get("regions"):
        yield "regions", formats.printable_line(", ".join(infrastructure["regions"]))
    if infrastructure.get("engine"):
        yield "engine", formats.printable_line(infrastructure["engine"])
    if infrastructure.get("priority") not in (None, "normal"):
        yield "priority", formats.printable_line(infrastructure["priority"])


def _budget_facts(cost: Json, then: object = None) -> Iterator[tuple[str, str]]:
    if cost.get("budget"):
        unit = cost.get("currency", "USD")
        remaining = (
            f"{money(cost.get('budget_remaining'), unit)} of {money(cost['budget'], unit)} left"
        )
        yield "budget", f"{remaining}, then {formats.printable_line(then)}" if then else remaining


def _forecast_range(cost: Json) -> str:
    """Return the forecast and its 80 % range: `$49.10 in total, $44.00 to $61.50 (80 %)`."""
    unit = cost.get("currency", "USD")
    low, high = cost.get("forecast_low"), cost.get("forecast_high")
    between = f", {money(low, unit)} to {money(high, unit)} (80 %)"
    is_range = low is not None and low != high
    return f"{money(cost.get('forecast_total'), unit)} in total{between if is_range else ''}"


def _storage_cost(cost: Json) -> str:
    unit = cost.get("currency", "USD")
    monthly = money(cost.get("storage_a_month"), unit)
    return f"{money(cost.get('storage'), unit)}, currently {monthly} a month"


def has_spent(job: Json) -> bool:
    """Return whether the job has cost anything yet."""
    return str(object_member(job, "cost").get("spent") or "0").strip("0.") != ""


def amount_saved(cost: Json) -> str:
    """Return the amount and share saved, such as `$1.20 (74 %)`."""
    share = cost.get("saved_percent")
    percent = f" ({share:.0f} %)" if isinstance(share, int | float) else ""
    return f"{money(cost.get('saved'), cost.get('currency', 'USD'))}{percent}"


def next_steps(job: Json) -> str:
    """Return the commands to run next, by the job's status."""
    name = job["id"]
    status = formats.status(job)
    if status == "succeeded":
        return f"Next: rekindle download {name}"
    if status == "failed":
        return f"Next: rekindle logs {name}, rekindle events {name}"
    if status == "paused":
        return f"Next: rekindle resume {name}, rekindle cancel {name}"
    if status == "cancelled":
        return f"Next: rekindle events {name}"
    return f"Next: rekindle watch {name}, rekindle logs {name} --follow"


def event_line(event: Json, *, day: bool = False) -> Text:
    """Return an event's time and message on one line."""
    return Text("  ").join(event_cells(event, day=day))


def event_cells(event: Json, *, day: bool = False) -> tuple[Text, Text]:
    """Return an event's time, and its message coloured by level."""
    styles = {"warn": "yellow", "error": "bold red"}
    when = Text(formats.local_time(event.get("created_at"), day=day), style="dim", no_wrap=True)
    message = formats.printable_line(event.get("message", ""))
    return when, Text(message, style=styles.get(str(event.get("level")), ""))


def _job_facts(job: Json, now: float) -> Iterator[tuple[str, str]]:
    cost, unit = object_member(job, "cost"), object_member(job, "cost").get("currency", "USD")
    if why := formats.reason(job):
        yield "why", formats.printable_line(why)
    if since := object_member(job, "status_reason").get("since"):
        next_try = formats.local_time(object_member(job, "status_reason").get("next_try_at"))
        yield "waiting since", f"{formats.local_time(since)}, next try by {next_try}"
    yield from admission_facts(job, now)
    fault = object_member(job, "error").get("message")
    if fault and fault.casefold() != formats.reason(job).casefold():
        yield "error", formats.printable_line(fault)
    yield "model", formats.printable_line(job.get("model", DASH))
    yield "training file", formats.printable_line(job.get("training_file", DASH))
    yield "method", formats.printable_line(object_member(job, "method").get("type", DASH))
    yield "data", data_counts(object_member(job, "plan"))
    yield "steps", _progress_summary(job)
    yield "speed", speed_summary(job) or DASH
    yield from micro_batch_facts(job)
    if checkpoint := object_member(job, "latest_checkpoint"):
        when = formats.time_since(checkpoint.get("created_at"), now)
        yield "checkpoint", f"step {checkpoint.get('step_number')}, {when}"
    yield "spent", f"{money(cost.get('spent'), unit)} of {_forecast(cost)}"
    yield "saved", f"{amount_saved(cost)} compared to on-demand"
    yield from limit_facts(job)
    yield "evictions", str(object_member(job, "attempts").get("evictions", DASH))
    yield "created", formats.local_time(job.get("created_at"), day=True)
    if job.get("finished_at"):
        took = job["finished_at"] - job["created_at"]
        yield (
            "finished",
            f"{formats.local_time(job['finished_at'], day=True)}, {formats.duration(took)}",
        )
    elif isinstance(job.get("estimated_finish"), int):
        yield "finishes in", f"about {formats.duration(job['estimated_finish'] - now)}"
    elif unknown := object_member(job, "forecast").get("unknown_because"):
        yield "finishes in", formats.printable_line(unknown)
    if job.get("fine_tuned_model"):
        yield "result", formats.printable_line(job["fine_tuned_model"])


def capacity_label(placement: Mapping[str, Any]) -> str:
    """Return the capacity type, with `Azure ML` if it runs the machines."""
    label = f"{placement.get('capacity_type')}"
    return f"{label}, Azure ML" if placement.get("engine") == "azureml" else label


def data_counts(plan: Mapping[str, Any]) -> str:
    """Return how many examples and tokens the training file has."""
    data = object_member(plan, "data")
    if not data:
        return "not counted yet; sequence lengths are estimates"
    return (
        f"{formats.number(data['examples'])} examples, "
        f"{formats.number(data['kept_tokens'])} tokens, "
        f"{formats.number(data['trained_tokens'])} trained"
    )


def admission_facts(job: Json, now: float) -> Iterator[tuple[str, str]]:
    """Yield when a queued job will probably be admitted."""
    if at := object_member(object_member(job, "forecast"), "let_in").get("p50"):
        yield "admitted", f"in about {formats.duration(at - now)}, {formats.local_time(at)}"


def _forecast(cost: Json) -> str:
    forecast = money(cost.get("forecast_total"), cost.get("currency", "USD"))
    return f"{forecast} forecast"


def _progress_summary(job: Json) -> str:
    percent = object_member(job, "progress").get("percent")
    done = f" ({percent:.0f} %)" if isinstance(percent, int | float) else ""
    return f"{step_counts(job)}{done}"


def micro_batch_facts(job: Json) -> Iterator[tuple[str, str]]:
    """Yield the reduced micro-batch after the job ran out of GPU memory."""
    now, planned = object_member(job, "rung"), object_member(job, "plan")
    if not now:
        return
    size, before = now.get("micro_batch"), planned.get("micro_batch")
    instead = f" instead of {before}" if before != size else ""
    recomputed = ", with gradient_checkpointing" if now.get("gradient_checkpointing") else ""
    yield "micro-batch", f"{size}{instead}{recomputed}, after GPU memory ran out"


def speed_summary(job: Json) -> str:
    """Return loss and speed, as far as they are known."""
    progress = object_member(job, "progress")
    is_graded = progress.get("reward") is not None
    validation = progress.get("valid_loss")  # minus the mean reward, with reinforcement
    measures = [
        (progress.get("loss"), "loss {}", 4),
        (None if is_graded else validation, "validation loss {}", 4),
        (progress.get("margin"), "margin {}", 4),
        (progress.get("reward"), "reward {}", 4),
        (
            -validation if is_graded and isinstance(validation, int | float) else None,
            "validation reward {}",
            4,
        ),
        (progress.get("kl"), "KL {}", 3),
        (progress.get("answer_tokens"), "{} tokens per answer", 0),
        (progress.get("tokens_per_second"), "{} tokens/s", 0),
        (progress.get("seconds_per_step"), "{} s/step", 2),
    ]
    return " · ".join(
        text.format(formats.number(value, digits))
        for value, text, digits in measures
        if isinstance(value, int | float)
    )
