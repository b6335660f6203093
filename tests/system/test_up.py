"""The whole local stack as a user starts it: `make up`, used, interrupted, started again."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import httpx
import psutil
import pytest

from tests import waiting

START_SECONDS = 90.0


@dataclass(frozen=True)
class Up:
    """A running `make up`."""

    process: asyncio.subprocess.Process
    state: Path
    port: int

    def facts(self) -> dict[str, str]:
        facts: dict[str, str] = json.loads((self.state / "stack.json").read_text())
        return facts

    def printed(self) -> str:
        return (self.state / "printed").read_text()


@asynccontextmanager
async def up(state: Path, port: int) -> AsyncIterator[Up]:
    """Start it and wait until it is ready or has ended; end it afterwards."""
    command = [sys.executable, "-m", "rekindle.up", "--state", str(state), "--port", str(port)]
    with _printing(state) as output:
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
    running = Up(process, state, port)

    async def over() -> bool:
        return (state / "stack.json").exists() or process.returncode is not None

    try:
        await waiting.until(over, bool, deadline=START_SECONDS)
        yield running
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()


@pytest.fixture(scope="module")
def port() -> int:
    """The first of four ports that are free just now."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            first: int = probe.getsockname()[1]
        if first < 65_000 and all(_free(first + n) for n in range(4)):
            return first


async def test_the_stack_works_and_leaves_no_process_behind(tmp_path: Path, port: int) -> None:
    async with up(tmp_path / "state", port) as stack:
        facts = stack.facts()
        bearer = {"Authorization": f"Bearer {facts['api_key']}"}
        async with httpx.AsyncClient(trust_env=False) as http:
            listed = await http.get(f"{facts['api_url']}/v1/fine_tuning/jobs", headers=bearer)
        parts = psutil.Process(stack.process.pid).children(recursive=True)
        printed = stack.printed()

    assert listed.json()["data"] == []
    assert f"OPENAI_BASE_URL={facts['api_url']}/v1" in printed
    assert len(parts) > 4
    assert [p for p in parts if p.is_running()] == []
    assert stack.process.returncode == 0


async def test_a_second_stack_is_told_what_is_in_its_way(tmp_path: Path, port: int) -> None:
    async with up(tmp_path / "state", port), up(tmp_path / "other", port) as second:
        assert f"port {port} (for api) cannot be had" in second.printed()
        assert second.process.returncode == 1

    async with up(tmp_path / "state", port) as again:
        assert again.facts()["api_url"].endswith(f":{port}")


def _printing(state: Path) -> TextIO:
    state.mkdir(exist_ok=True)
    return (state / "printed").open("w")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
