"""`rekindle metrics`: the steps of a job in files of other programs."""

import csv
from pathlib import Path

import pytest

from contract import events_file
from tests.integration.cli.conftest import Shell
from tests.nodes.scripted_node import boot, metrics, train
from trainer.contract import NodePhase

STEPS = 12


@pytest.fixture
async def job(shell: Shell) -> str:
    """Return the id of a job that has trained some steps."""
    name = str((await shell.world.submit())["id"])
    nodes = await boot(shell.world, name)
    number = await train(shell.world, nodes, step=1)
    measured = tuple(metrics(step) for step in range(1, STEPS + 1))
    await nodes[0].say(NodePhase.RUNNING, number, step=STEPS, metrics=measured)
    return name


async def test_every_step_is_in_the_table_and_in_the_event_file(
    shell: Shell, job: str, tmp_path: Path
) -> None:
    table, folder = tmp_path / "new" / "steps.csv", tmp_path / "runs"

    ended = await shell.run("metrics", job, "--csv", str(table), "--tensorboard", str(folder))
    shown = await shell.run("metrics", job)

    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == list(range(1, STEPS + 1))
    assert float(rows[4]["loss"]) == metrics(5).loss
    assert shown.out == table.read_text()
    (events,) = (folder / job).iterdir()
    assert events.read_bytes().count(b"train/loss") == STEPS
    assert events.read_bytes().startswith(events_file.beginning(0.0)[:8])
    assert f"wrote {STEPS} steps to {table}" in ended.err.replace("\n", "")
