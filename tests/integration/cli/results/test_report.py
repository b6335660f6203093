"""`rekindle report` and `rekindle metrics`: what a job measured, in files."""

import csv
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract import events_file
from rekindle.cli.errors import CliError
from rekindle.cli.jobs.report import fill_template
from service.api.app import make_app
from tests.integration.cli.conftest import Shell
from tests.nodes.scripted_node import boot, metrics, train
from tests.served import served
from trainer.contract import NodePhase

DATA = '<script type="application/json" id="report-data">null</script>'
TEMPLATE = f"<!doctype html><title>Rekindle report</title>{DATA}"


def data_in(page: str) -> Any:  # noqa: ANN401 - JSON
    """Return the data in the script element, which ends at the first end tag, as in a browser."""
    (text,) = re.findall(r'id="report-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


@pytest.fixture
async def console(shell: Shell, tmp_path: Path) -> AsyncIterator[Shell]:
    """Yield a shell for the same service with a built console."""
    built = tmp_path / "dist"
    built.mkdir()
    (built / "report.html").write_text(TEMPLATE)
    async with served(make_app(replace(shell.world.parts, web=built))) as url:
        yield replace(shell, url=url)


async def test_a_report_holds_all_that_its_page_shows(console: Shell) -> None:
    job = await console.world.submit(suffix="tone")

    result = await console.run("report", job["id"], "--output", "report.html")

    data = data_in((console.folder / "report.html").read_text())
    assert result.code == 0, result.err
    assert data["job"]["user_provided_suffix"] == "tone"
    assert {"attempts", "events", "metrics"} <= data.keys()
    assert data["job"]["deepspeed"]["config"]["train_micro_batch_size_per_gpu"] == 1
    assert data["card"] is None  # the model is not there yet
    assert console.key not in json.dumps(data)


async def test_a_service_without_a_console_says_how_to_build_one(shell: Shell) -> None:
    job = await shell.world.submit()

    result = await shell.run("report", job["id"])

    assert result.code == 1
    assert "without the console" in result.err
    assert "make setup" in result.err
    assert not list(shell.folder.glob("*.html"))


def test_no_text_of_a_job_ends_the_script_that_holds_it() -> None:
    values = {"job": "</script><script>alert(1)</script><!--"}

    page = fill_template(TEMPLATE, values)

    assert data_in(page) == values
    assert page.count("<script") == 1


def test_a_page_of_another_release_is_refused() -> None:
    with pytest.raises(CliError, match="another release"):
        fill_template("<!doctype html>", {})


STEPS = 12


@pytest.fixture
async def trained(shell: Shell) -> str:
    """Return the id of a trained that has trained some steps."""
    name = str((await shell.world.submit())["id"])
    nodes = await boot(shell.world, name)
    number = await train(shell.world, nodes, step=1)
    measured = tuple(metrics(step) for step in range(1, STEPS + 1))
    await nodes[0].say(NodePhase.RUNNING, number, step=STEPS, metrics=measured)
    return name


async def test_every_step_is_in_each_file(shell: Shell, trained: str, tmp_path: Path) -> None:
    table, folder = tmp_path / "new" / "steps.csv", tmp_path / "runs"

    result = await shell.run("metrics", trained, "--csv", str(table), "--tensorboard", str(folder))
    output = await shell.run("metrics", trained)

    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == list(range(1, STEPS + 1))
    assert float(rows[4]["loss"]) == metrics(5).loss
    assert output.out == table.read_text()
    (events,) = (folder / trained).iterdir()
    assert events.read_bytes().count(b"train/loss") == STEPS
    assert events.read_bytes().startswith(events_file.beginning(0.0)[:8])
    assert f"wrote {STEPS} steps to {table}" in result.err.replace("\n", "")
