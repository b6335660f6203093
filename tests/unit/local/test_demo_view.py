"""What the demo and `make up` print can be read and pasted."""

import shlex
from io import StringIO
from pathlib import Path

from rekindle.local.demo_view import DemoView
from rekindle.local.layout import StackLayout
from rekindle.local.state_folder import StackPorts, StateFolder
from rekindle.local.up import ready_banner
from rekindle.terminal import Console

ATTEMPT = {
    "number": 1,
    "nodes": 2,
    "sku": "Standard_ND96amsr_A100_v4",
    "region": "eastus",
    "capacity": "spot",
    "from_step": 1056,
    "last_step": 1120,
    "lost_steps": 3,
    "outcome": "evicted",
    "state": "ended",
    "reason": "1 of 2 instances evicted without notice",
    "machine_hours": "0.0350",
    "cost": "0.2957",
}
COST = {"spent": "0.60", "on_demand_equivalent": "2.32", "saved": "1.72", "saved_percent": 74.2}


def test_no_word_of_the_table_is_cut_at_80_columns() -> None:
    text = StringIO()
    job = {"cost": COST}

    DemoView(Console(file=text, width=80)).print_attempts(job, [ATTEMPT], job)

    for phrase in (
        "2 x Standard_ND96amsr_A100_v4",
        "evicted: 1 of 2 instances",
        "1056 to 1120",
        "0.0350",
        "0.2957",
    ):
        assert phrase in text.getvalue()
    assert max(len(line.rstrip()) for line in text.getvalue().splitlines()) <= 80


def test_a_log_without_a_live_line_shows_progress_every_ten_seconds() -> None:
    text = StringIO()
    now = [0.0]
    view = DemoView(Console(file=text, width=80), lambda: now[0])
    job = {
        "phase": "training",
        "progress": {"step": 3, "total_steps": 24},
        "cost": {"spent": "0.10", "forecast_total": "0.40", "currency": "USD"},
        "attempts": {"evictions": 1},
    }

    for now[0] in (4.0, 9.0, 10.0, 15.0, 20.0):
        view.update_job(job, [])

    assert text.getvalue().count("training  step 3/24") == 2


def test_every_export_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    layout = StackLayout(StateFolder(tmp_path), StackPorts.starting_at(9080))
    lines = [line.strip() for line in ready_banner(layout, "rk-key", "token").splitlines()]

    words = [word for line in lines if line.startswith("export ") for word in shlex.split(line)]
    exports = dict(word.split("=", 1) for word in words if word != "export")

    link = next(line for line in lines if line.startswith("Console"))
    assert "http://127.0.0.1:9080/#sign-in=token " in link
    assert exports["OPENAI_API_KEY"] == "rk-key"
    assert exports["OPENAI_BASE_URL"] == "http://127.0.0.1:9080/v1"
    assert exports["REKINDLE_STORAGE"] == layout.storage
    assert exports["REQUESTS_CA_BUNDLE"] == str(layout.ca)
