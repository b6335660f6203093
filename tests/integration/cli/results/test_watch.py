"""`rekindle watch` and `logs --follow`: over evictions, outages and Ctrl-C."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests import waiting
from tests.integration.cli.conftest import Shell, ctrl_c_is_heard
from tests.nodes.scripted_node import ScriptedNode, boot, commit, committed, train
from trainer.contract import NodePhase, log_path


@pytest.fixture
async def job(shell: Shell) -> str:
    """Return the id of a job that trains on two scripted machines."""
    return str((await shell.world.submit())["id"])


async def finish(shell: Shell, job: str, nodes: list[ScriptedNode], number: int) -> None:
    """Commit the final model and let every machine finish and go away."""
    await commit(shell.world, job, committed(10, number, "final"))
    for node in nodes:
        await node.say(NodePhase.FINISHED, number, step=10)
    await shell.world.tick(8)


async def printed(reading: asyncio.StreamReader, expected: str) -> str:
    """Lines until one that holds ``expected``."""
    text = ""
    while expected not in text:
        line = await asyncio.wait_for(reading.readline(), 30)
        assert line, f"ended without {expected!r}: {text}"
        text += line.decode()
    return text


@pytest.fixture
async def watching(shell: Shell, job: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`rekindle watch` as a process of its own, without a terminal."""
    with ctrl_c_is_heard():
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rekindle.cli.main", "watch", job),
            env={"REKINDLE_URL": shell.url, "REKINDLE_API_KEY": shell.key},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    yield process
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def test_watch_tells_a_whole_life_and_ends_with_the_job(shell: Shell, job: str) -> None:
    watch = asyncio.create_task(shell.run("watch", job))
    nodes = await boot(shell.world, job)
    number = await train(shell.world, nodes, step=1)
    await finish(shell, job, nodes, number)

    result = await asyncio.wait_for(watch, 60)

    assert result.code == 0
    assert "Attempt 1: asking Azure for 2 x" in result.out
    assert "Succeeded · step 10/60" in result.out  # as the model says, not the last report
    assert f"Next: rekindle download {job}" in result.out


async def test_watching_a_job_that_was_cancelled_fails(shell: Shell, job: str) -> None:
    await shell.run("cancel", job)
    await shell.world.tick(2)

    result = await shell.run("watch", job)
    document = await shell.run("watch", job, "--json")

    assert result.code == 1
    assert "Cancelled" in result.out
    lines: list[dict[str, Any]] = [json.loads(line) for line in document.out.splitlines()]
    assert {line["object"] for line in lines} == {"fine_tuning.job", "fine_tuning.job.event"}
    assert lines[-1]["status"] == "cancelled"
    events = [line["id"] for line in lines if line["object"] == "fine_tuning.job.event"]
    assert len(events) == len(set(events))


async def test_watching_outlives_a_service_that_is_away(
    shell: Shell, job: str, watching: asyncio.subprocess.Process
) -> None:
    assert watching.stdout is not None
    await printed(watching.stdout, "Created job")
    shell.switch.is_away = True
    await shell.world.call("POST", f"/v1/fine_tuning/jobs/{job}/cancel")
    await shell.world.tick(2)
    output = await printed(watching.stdout, "retrying")
    await waiting.until(lambda: _value(shell.switch.refused), lambda n: n >= 2)
    shell.switch.is_away = False

    remainder = await printed(watching.stdout, f"Next: rekindle events {job}")

    assert "The job continues meanwhile" in output
    assert "The service answers again." in remainder
    assert remainder.count("retrying") == 0
    assert await asyncio.wait_for(watching.wait(), 30) == 1


async def test_ctrl_c_ends_the_watching_and_not_the_job(
    shell: Shell, job: str, watching: asyncio.subprocess.Process
) -> None:
    assert watching.stdout is not None
    await printed(watching.stdout, "Created job")

    watching.send_signal(signal.SIGINT)
    _, stderr = await asyncio.wait_for(watching.communicate(), 30)

    assert watching.returncode == 130
    assert f"{job} continues" in stderr.decode()
    assert "Traceback" not in stderr.decode()
    assert (await shell.world.job(job))["finished_at"] is None


async def test_a_reader_that_goes_away_is_no_failure_of_ours(shell: Shell, job: str) -> None:
    command = (
        f"{sys.executable} -m rekindle.cli.main events {job} --json | true; exit ${{PIPESTATUS[0]}}"
    )
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command),
        env={"REKINDLE_URL": shell.url, "REKINDLE_API_KEY": shell.key},
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await asyncio.wait_for(process.communicate(), 30)

    assert process.returncode == 141
    assert stderr == b""


async def test_logs_show_the_end_and_follow_over_attempts(shell: Shell, job: str) -> None:
    nodes = await boot(shell.world, job)
    number = await train(shell.world, nodes, step=1)
    path = log_path(nodes[0].attempt_id, 0)
    await shell.world.store.write(job, path, b"one\ntwo\nthree\n")

    tail = await shell.run("logs", job, "--tail", "2")
    followed = asyncio.create_task(shell.run("logs", job, "--follow", "--tail", "1", "--json"))
    await shell.world.store.write(job, path, b"one\ntwo\nthree\nfour\nfi")
    await shell.world.store.write(job, path, b"one\ntwo\nthree\nfour\nfive\ncut o")
    await finish(shell, job, nodes, number)
    result = await asyncio.wait_for(followed, 60)

    assert tail.out == "two\nthree\n"
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert lines[-1] == {"attempt": 1, "line": "cut o"}
    assert {line["attempt"] for line in lines} == {1}
    assert result.code == 0


async def _value(value: Any) -> Any:  # noqa: ANN401 - whatever is waited for
    return value


async def test_a_log_is_shown_without_control_characters_or_raw(shell: Shell, job: str) -> None:
    await boot(shell.world, job)
    (attempt,) = await shell.world.attempts_of(job)
    text = b"\x1b]52;c;cm0=\x07loss 1\r\n 1%\r 2%\xff Gr\xc3\xb6\xc3\x9fe\n"
    await shell.world.store.write(job, log_path(attempt["id"], 0), text)

    output = await shell.run("logs", job)
    raw = await shell.run("logs", job, "--raw")
    document = (await shell.run("logs", job, "--json")).json

    assert output.out == "\\x1b]52;c;cm0=\\x07loss 1\n 1%\n 2%\\xff Größe\n"
    assert raw.out == text.decode(errors="replace").replace("\r\n", "\n"), "as a runner decodes"
    assert document["text"] == text.decode(errors="replace")


async def test_names_and_errors_of_strangers_reach_no_terminal_as_they_are(shell: Shell) -> None:
    name = "Modell \u202e\x9b2J"
    await shell.world.call("POST", "/v1/api_keys", json={"name": name})

    key_list = await shell.run("keys", "list")
    document = await shell.run("keys", "list", "--json")
    result = await shell.run("keys", "create", "\x1b[2J")

    assert r"Modell \u202e\x9b2J" in key_list.out
    assert name in [key["name"] for key in document.json["data"]]
    for printed in (key_list.out, document.out, result.out + result.err):
        assert not {"\u202e", "\x9b", "\x1b"} & set(printed)
