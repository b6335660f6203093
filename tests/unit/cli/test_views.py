import io
import subprocess
import sys
from datetime import UTC
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.connection import ConnectionOptions
from rekindle.cli.errors import ServiceUnreachable
from rekindle.cli.jobs import views
from rekindle.cli.jobs.job_feed import JobUpdate
from rekindle.cli.jobs.watch_lines import LineView
from rekindle.cli.jobs.watch_screen import LiveView, job_view
from rekindle.cli.projects.savings import read_all_projects
from rekindle.terminal import Console

NOW = 1_795_000_100.0
JOB: dict[str, Any] = {
    "id": "ftjob-01m7xfgg7ww9zky9rt2r5f5s0q",
    "status": "running",
    "phase": "training",
    "model": "rekindle/tiny-llama",
    "created_at": 1_795_000_000,
    "finished_at": None,
    "estimated_finish": 1_795_000_160,
    "status_reason": {"code": "training", "message": "Training on 2 machines."},
    "progress": {
        "step": 40,
        "total_steps": 140,
        "percent": 28.6,
        "loss": 2.31,
        "tokens_per_second": 1280.4,
        "lost_steps": 0,
    },
    "cost": {
        "currency": "USD",
        "spent": "0.0312",
        "forecast_total": "1.20",
        "planned_total": "1.10",
        "saved": "0.09",
        "saved_percent": 74.2,
    },
    "attempts": {"count": 2, "current": "att-2", "evictions": 1},
    "latest_checkpoint": {"step_number": 38, "created_at": 1_795_000_096},
}
EVENT = {
    "id": "ftevent-1",
    "created_at": 1_795_000_099,
    "level": "warn",
    "message": "Azure \x1b[2Jtakes back one machine",
}


def drawn(view: Any, width: int = 100) -> str:  # noqa: ANN401 - anything rich draws
    console = Console(file=io.StringIO(), width=width, record=True, force_terminal=True)
    console.print(view)
    return console.export_text()


def test_the_picture_says_what_a_user_wants_to_know() -> None:
    output = drawn(job_view(JOB, [EVENT], NOW))

    for text in (
        "Training on 2 machines.",
        "40/140 steps",
        "29 %",
        "loss 2.3100 · 1,280 tokens/s",
        "$0.0312 so far · $1.20 forecast · $1.10 planned",
        "$0.0900 (74 %) compared to on-demand",
        "1 · attempt 2 · 0 steps repeated",
        "step 38, 4 s ago",
        "1 min 40 s · about 60 s left".replace("60 s", "1 min 00 s"),
        r"Azure \x1b[2Jtakes back one machine",
        "Ctrl-C stops watching; the job continues.",
    ):
        assert text in output
    assert "left, then" not in output


def test_the_picture_shows_budget_and_deadline_where_there_are_any() -> None:
    bill = JOB["cost"] | {"budget": "120.00", "budget_remaining": "101.58"}
    infrastructure = {
        "budget": {"amount": "120.00", "on_exhausted": "pause"},
        "deadline": 1_795_009_999,
        "max_price": {"amount": "3.90"},
        "regions": ["eastus", "uksouth"],
    }
    limited = {"cost": bill, "infrastructure": infrastructure, "forecast": {"meets_deadline": 0.97}}
    text = drawn(job_view(JOB | limited, [], NOW))

    assert "$101.58 of $120.00 left, then pause" in text
    assert "97 % likely to be met" in text
    assert "$3.90 per GPU-hour" in text
    assert "eastus, uksouth" in text


def test_a_bill_says_between_which_sums_it_will_end() -> None:
    bill = {"forecast_total": "49.1", "forecast_low": "44", "forecast_high": "61.5"}
    table = drawn(next(iter(views.cost_details(bill | {"per_million_tokens": "0.5"}, []))))

    assert "$49.10 in total, $44.00 to $61.50 (80 %)" in table
    assert "$0.5000" in table


@pytest.mark.parametrize(
    ("rung", "expected"),
    [
        ((1, False), "1 instead of 4, after GPU memory ran out"),
        ((1, True), "1 instead of 4, with gradient_checkpointing, after GPU memory ran out"),
        ((4, True), "4, with gradient_checkpointing, after GPU memory ran out"),
    ],
)
def test_a_smaller_micro_batch_than_planned_is_shown(rung: tuple[int, bool], expected: str) -> None:
    size, recomputed = rung
    job = JOB | {
        "plan": {"micro_batch": 4},
        "rung": {"micro_batch": size, "gradient_checkpointing": recomputed},
    }
    planned = JOB | {"plan": {"micro_batch": 4}, "rung": None}

    assert expected in drawn(job_view(job, [], NOW))
    assert expected in "".join(drawn(piece) for piece in views.job_details(job, [], NOW))
    assert "micro-batch" not in drawn(job_view(planned, [], NOW))


def test_figures_of_a_method_stand_beside_the_loss_and_unseen_prompts_have_no_loss() -> None:
    grades = {"reward": 0.5, "kl": 1.25, "answer_tokens": 40.0, "valid_loss": -0.625}
    pairs, text = (
        drawn(job_view(JOB | {"progress": JOB["progress"] | progress}, [], NOW))
        for progress in ({"margin": 0.25}, grades)
    )

    assert "loss 2.3100 · margin 0.2500 · 1,280 tokens/s" in pairs
    assert "reward 0.5000 · validation reward 0.6250 · KL 1.250 · 40 tokens per answer" in text
    assert "validation loss" not in text


def test_a_service_that_is_away_leaves_the_picture_and_says_so() -> None:
    screen = LiveView(lambda: NOW)
    screen.show_update(JobUpdate(JOB, [EVENT]))
    screen.show_outage(ServiceUnreachable("It does not answer."))

    text = drawn(screen)

    assert "40/140 steps" in text
    assert "It does not answer. The job continues meanwhile; retrying." in text


@pytest.mark.parametrize("width", [30, 60, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    attempt = {
        "number": 1,
        "nodes": 2,
        "sku": "Standard_ND96amsr_A100_v4",
        "region": "eastus",
        "capacity": "spot",
        "cost": "1.2",
        "reason": "1 of 2 instances evicted after notice.",
        "outcome": "evicted",
        "from_step": 0,
        "last_step": 146,
    }
    for view in (job_view(JOB, [EVENT], NOW), *views.job_details(JOB, [attempt], NOW)):
        assert max(len(line) for line in drawn(view, width).splitlines() or [""]) <= width


def test_members_that_an_older_service_lacks_are_dashes() -> None:
    bare = {"id": "ftjob-1", "status": "queued", "created_at": 1_795_000_000}

    text = drawn(job_view(bare, [], NOW)) + "".join(
        drawn(v) for v in views.job_details(bare, [], NOW)
    )

    assert "None" not in text
    assert "Queued" in text
    assert "-" in text


def test_lines_tell_every_event_and_phase_but_not_every_step() -> None:
    at = NOW
    console = Console(file=io.StringIO(), width=200, record=True)
    lines = LineView(console, lambda: at)
    updates = [(1, "training", 0), (2, "training", 1), (3, "saving", 1), (9, "saving", 20)]
    for step, phase, later in updates:
        at = NOW + later
        job = JOB | {"phase": phase, "progress": {"step": step, "total_steps": 140}}
        lines.show_update(JobUpdate(job, [EVENT] if step == 2 else []))

    text = console.export_text()

    assert text.count("takes back one machine") == 1
    assert [f"step {n}/140" in text for n in (1, 2, 3, 9)] == [True, False, True, True]


QUEUED: dict[str, Any] = JOB | {
    "status": "queued",
    "phase": "queued",
    "status_reason": {
        "code": "project_jobs",
        "message": "3rd in the queue: it is full.",
        "since": 1_795_000_000,
        "next_try_at": 1_795_000_105,
    },
    "queue": {"position": 3},
    "infrastructure": {"priority": "high"},
}


def watched(job: dict[str, Any]) -> str:
    return drawn(job_view(job, [], NOW))


def test_a_job_that_waits_shows_its_place_why_and_since_when() -> None:
    text = "\n".join(drawn(section) for section in views.job_details(QUEUED, [], NOW))

    assert "Queued" in text
    assert "3rd in the queue: it is full." in text
    since, again = (
        formats.local_time(QUEUED["status_reason"][k]) for k in ("since", "next_try_at")
    )
    assert f"waiting since  {since}, next try by {again}" in text
    assert "priority       high" in text
    nobody = {"estimated_finish": None, "forecast": {"unknown_because": "Others hold it."}}
    soon = {"forecast": {"let_in": {"p10": NOW, "p50": NOW + 7500, "p90": NOW + 9000}}}
    for view in (lambda job: "".join(map(drawn, views.job_details(job, [], NOW))), watched):
        assert "Others hold it." in view(QUEUED | nobody)
        assert "in about 2 h 05 min, " in view(QUEUED | soon)
        assert "let in" not in view(QUEUED | nobody)
    assert "queued (3)" in drawn(views.jobs_table([QUEUED], NOW), 160)
    assert "waiting since" not in "".join(
        drawn(section) for section in views.job_details(JOB, [], NOW)
    )


def test_lines_tell_when_a_job_that_waits_comes_forward() -> None:
    at = NOW
    console = Console(file=io.StringIO(), width=200, record=True)
    lines = LineView(console, lambda: at)
    for position, later in ((3, 0), (3, 10), (2, 20)):
        at = NOW + later
        queue = QUEUED["queue"] | {"position": position}
        reason = {"code": "project_jobs", "message": f"Number {position}."}
        lines.show_update(JobUpdate(QUEUED | {"queue": queue, "status_reason": reason}, []))

    text = console.export_text()
    assert [text.count(f"Number {n}.") for n in (3, 2)] == [1, 1]


def test_help_does_not_wait_for_what_only_commands_need() -> None:
    code = "import sys, rekindle.cli.main; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    heavy = {"httpx", "asyncio", "azure", "tenacity", "psutil", "openai"}
    assert heavy & set(result.stdout.split()) == set()


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (formats.money("12.3456", "USD"), "$12.35"),
        (formats.money("0.0312", "USD"), "$0.0312"),
        (formats.money("0.0000", "USD"), "$0.00"),
        (formats.money("-0.5", "USD"), "-$0.5000"),
        (formats.money("1234567.8", "EUR"), "€1,234,567.80"),
        (formats.money("3", "CHF"), "3.00 CHF"),
        (formats.money(None, "USD"), "-"),
        (formats.duration(0.4), "0 s"),
        (formats.duration(59), "59 s"),
        (formats.duration(200), "3 min 20 s"),
        (formats.duration(7500), "2 h 05 min"),
        (formats.duration(273_600), "3 d 4 h"),
        (formats.duration(-3), "0 s"),
        (formats.duration(None), "-"),
        (formats.size(0), "0 B"),
        (formats.size(999), "999 B"),
        (formats.size(1_234_567), "1.2 MB"),
        (formats.size(15e12), "15.0 TB"),
        (formats.size(None), "-"),
    ],
)
def test_money_durations_and_sizes_have_the_digits_that_matter(
    formatted: str, expected: str
) -> None:
    assert formatted == expected


def test_times_are_in_the_zone_of_who_reads_them() -> None:
    assert formats.local_time(1_795_000_000, UTC) == "11:06:40"
    assert formats.local_time(1_795_000_000, UTC, day=True) == "2026-11-18 11:06:40"
    assert formats.local_time(None) == "-"


def test_a_job_that_is_over_says_how_and_not_what_it_last_did() -> None:
    assert formats.phase({"status": "failed", "phase": "done"}) == "Failed"
    assert (
        formats.phase({"status": "running", "phase": "waiting_capacity"}) == "Waiting for capacity"
    )


def test_a_phase_that_is_news_to_us_is_shown_as_it_is() -> None:
    assert formats.phase({"status": "running", "phase": "warming_up"}) == "Warming up"
    assert formats.phase({}) == "-"


def test_a_reason_that_repeats_the_state_is_left_out() -> None:
    job = {"status": "running", "phase": "training"}

    assert formats.reason(job | {"status_reason": {"code": "x", "message": "training"}}) == ""
    assert (
        formats.reason(job | {"status_reason": {"message": "Azure has none."}}) == "Azure has none."
    )
    assert formats.reason(job) == ""


def test_what_strangers_wrote_cannot_move_the_cursor() -> None:
    assert formats.printable_line("a\x1b[2Jb\r\nc") == r"a\x1b[2Jb c"


def test_every_page_is_of_the_moment_of_the_first() -> None:
    queries: list[dict[str, Any]] = []

    def get(_: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - a query
        queries.append(query)
        n = len(queries)
        return {"data": [n], "last_id": f"p-{n}", "has_more": n < 3, "until": 100 * n}

    cli = Cli(ConnectionOptions(), as_json=True)
    vars(cli)["client"] = SimpleNamespace(get=get)

    assert read_all_projects(cli, 7)["data"] == [1, 2, 3]
    assert [(query.get("after"), query.get("until")) for query in queries] == [
        (None, None),
        ("p-1", 100),
        ("p-2", 100),
    ]
