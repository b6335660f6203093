"""`rekindle pipeline`: phase after phase by one command, over Ctrl-C and failures."""

import asyncio
import json
import signal
import sys
from typing import Any

import pytest

from rekindle.cli.job_lookup import JOBS
from tests import waiting
from tests.datasets import PAIRS, prompts
from tests.integration.cli.conftest import Shell
from tests.integration.finished_jobs import finish_job
from tests.world import MODEL

SEED = {"seed": 7, "infrastructure": {"nodes": 2}}
NAMES = ["sft", "judge", "rl"]


@pytest.fixture
def pipeline(shell: Shell) -> str:
    """Write a pipeline of three phases (SFT, reward model, RL) with its files; return its path."""
    shell.dataset("chats.jsonl")
    shell.dataset("pairs.jsonl", PAIRS)
    shell.dataset("prompts.jsonl", prompts())
    grader = {"type": "reward_model", "model": "$judge"}
    method_body = {"type": "reinforcement", "reinforcement": {"grader": grader}}
    phases: list[dict[str, Any]] = [
        {"name": "sft", "model": MODEL, "training_file": "chats.jsonl"},
        {
            "name": "judge",
            "model": "$sft",
            "training_file": "pairs.jsonl",
            "method": {"type": "reward"},
        },
        {"name": "rl", "model": "$sft", "training_file": "prompts.jsonl", "method": method_body},
    ]
    path = shell.folder / "pipeline.json"
    path.write_text(json.dumps({"name": "helpful", "phases": [p | SEED for p in phases]}))
    return str(path)


async def jobs(shell: Shell) -> list[dict[str, Any]]:
    """Oldest first."""
    job_rows: list[dict[str, Any]] = (await shell.world.call("GET", f"/v1{JOBS}")).json()["data"]
    return job_rows[::-1]


async def submitted(shell: Shell, count: int) -> str:
    """Wait until there are this many jobs and return the id of the newest."""
    job_rows = await waiting.until(lambda: jobs(shell), lambda job_rows: len(job_rows) >= count)
    return str(job_rows[-1]["id"])


async def test_three_phases_hand_their_models_on(shell: Shell, pipeline: str) -> None:
    running = asyncio.create_task(shell.run("pipeline", pipeline))
    for count in (1, 2, 3):
        await finish_job(shell.world, await submitted(shell, count))
        shell.world.clock.advance(seconds=1)
    result = await running
    repeated = await shell.run("pipeline", pipeline, "--json")

    sft, judge, rl = await jobs(shell)
    assert result.code == repeated.code == 0, result
    assert [job["metadata"]["phase"] for job in (sft, judge, rl)] == NAMES
    assert {job["metadata"]["pipeline"] for job in (sft, judge, rl)} == {"helpful"}
    assert judge["model"] == rl["model"] == sft["fine_tuned_model"]
    grader = rl["method"]["reinforcement"]["grader"]
    assert grader["model"] == judge["fine_tuned_model"]
    assert repeated.json["models"] == {
        name: job["fine_tuned_model"] for name, job in zip(NAMES, (sft, judge, rl), strict=True)
    }
    assert f"Next: rekindle download {rl['id']} model/" in result.out
    assert "sft: about $" in result.err
    assert "judge: about $" in result.err
    assert "rl: unknown until the grader's model is trained" in result.err
    assert "for 2 of 3 phases" in result.err


async def test_a_failed_phase_stops_it_until_a_retry(shell: Shell, pipeline: str) -> None:
    running = asyncio.create_task(shell.run("pipeline", pipeline))
    first = await submitted(shell, 1)
    await shell.run("cancel", first)
    await shell.world.tick(2)
    stopped = await running
    result = await shell.run("pipeline", pipeline)
    retrying = asyncio.create_task(shell.run("pipeline", pipeline, "--retry"))
    second = await submitted(shell, 2)
    await shell.run("cancel", second)
    await shell.world.tick(2)
    await retrying

    assert (stopped.code, result.code) == (1, 1)
    assert f"Phase sft ended as cancelled: job {first}" in stopped.err
    assert "--retry" in result.err
    assert [job["metadata"]["phase"] for job in await jobs(shell)] == ["sft", "sft"]


async def test_ctrl_c_leaves_the_job_to_the_next_run(shell: Shell, pipeline: str) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rekindle.cli.main", "pipeline", pipeline),
        env={"REKINDLE_URL": shell.url, "REKINDLE_API_KEY": shell.key},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    signal.signal(signal.SIGINT, before)
    name = await submitted(shell, 1)
    assert process.stderr is not None
    output = b""
    while b" is " + name.encode() not in output:
        output += await asyncio.wait_for(process.stderr.readline(), 30)
    process.send_signal(signal.SIGINT)
    _, stdout = await asyncio.wait_for(process.communicate(), 30)
    running = asyncio.create_task(shell.run("pipeline", pipeline))
    await finish_job(shell.world, name)
    second = await submitted(shell, 2)
    await shell.run("cancel", second)
    await shell.world.tick(2)
    await running

    assert process.returncode == 130
    assert f"Continue: rekindle pipeline {pipeline}" in stdout.decode()
    assert [job["metadata"]["phase"] for job in await jobs(shell)] == ["sft", "judge"]


async def test_what_is_wrong_is_said_before_any_job(shell: Shell, pipeline: str) -> None:
    (shell.folder / "pairs.jsonl").write_bytes((shell.folder / "chats.jsonl").read_bytes())
    invalid = await shell.run("pipeline", pipeline)
    shell.dataset("pairs.jsonl", PAIRS)
    shell.dataset("prompts.jsonl", b'{"messages": []}')
    damaged = await shell.run("pipeline", pipeline)
    (shell.folder / "prompts.jsonl").unlink()
    absent = await shell.run("pipeline", pipeline)
    missing_file = await shell.run("pipeline", "none.json")

    assert [e.code for e in (invalid, damaged, absent, missing_file)] == [2, 2, 2, 2]
    assert "line 1" in damaged.err.lower()
    assert "holds chats, and method reward learns from preferences" in invalid.err
    assert "prompts.jsonl does not exist" in absent.err
    assert "none.json: No such file" in missing_file.err
    assert await jobs(shell) == []
