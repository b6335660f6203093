"""The quickstart, typed from top to bottom on a fresh stack: it works, and prints what it shows."""

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench import ports
from rekindle.local.layout import MODELS, REAL_MODEL
from rekindle.local.running_stack import StackInfo
from rekindle.local.setup import ROOT, VENV
from tests import waiting
from tests.system.product import Product, up

PAGE = ROOT / "docs" / "quickstart.md"
BLOCK = re.compile(
    r"(<!-- test: while the job trains -->\n)?```(sh|text|python)\n(.*?)```", re.DOTALL
)
JOBS = 7
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Block:
    """A fenced block of the page."""

    kind: str
    text: str
    meanwhile: bool  # to be typed while the command before it runs


@dataclass(frozen=True)
class Terminal:
    """A shell in a folder that looks like the checkout with its stack."""

    folder: Path
    product: Product

    async def type(self, block: Block) -> str:
        """Run the block and return all that it printed."""
        shell = ["bash", "-ec", block.text] if block.kind == "sh" else ["python", "-c", block.text]
        facts = self.product.stack
        process = await asyncio.create_subprocess_exec(
            *shell,
            cwd=self.folder,
            env={
                **os.environ,  # noqa: TID251 - what a terminal would have
                "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}",  # noqa: TID251
                "OPENAI_BASE_URL": f"{facts.api_url}/v1",
                "OPENAI_API_KEY": facts.api_key,
                "NO_COLOR": "1",
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        text = printed.decode()
        LOG.info("%s\n%s", block.text, text)
        assert process.returncode == 0, text
        return text


def blocks() -> list[Block]:
    matches = BLOCK.findall(PAGE.read_text())
    return [Block(kind, text, meanwhile=bool(mark)) for mark, kind, text in matches]


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    state = tmp_path / ".rekindle"
    async with up(state, ports.free(4), REAL_MODEL) as running:
        (state / "models").symlink_to(MODELS)
        (tmp_path / ".venv").symlink_to(VENV)
        stack = StackInfo.read(running.state)
        headers = {"Authorization": f"Bearer {stack.api_key}"}
        url = f"{stack.api_url}/v1"
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as http:
            yield Terminal(tmp_path, Product(stack, http))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_every_command_works_and_every_job_learns(terminal: Terminal) -> None:
    page = blocks()
    printed = ""
    running: asyncio.Task[str] | None = None
    for number, block in enumerate(page):
        if block.kind == "text":
            assert shows(printed, block.text), f"{block.text}\nis not in\n{printed}"
        elif number + 1 < len(page) and page[number + 1].meanwhile:
            running = asyncio.create_task(terminal.type(block))
            await _trains(terminal.product)
        else:
            printed = await terminal.type(block)
            if running is not None:
                printed += await running
                running = None
    summaries = (await terminal.product.get("/fine_tuning/jobs?limit=100"))["data"]
    jobs = [await terminal.product.get(f"/fine_tuning/jobs/{job['id']}") for job in summaries]

    assert [job["status"] for job in jobs] == ["succeeded"] * JOBS
    assert jobs[-1]["attempts"]["evictions"] == 1
    for job in jobs:
        if job["validation_file"]:
            assert await _gain(terminal.product, job["id"]) > 0, job["method"]


def shows(printed: str, example: str) -> bool:
    """Whether every line of the example was printed, whatever its numbers and ids are."""
    lines = {_bare(line) for line in printed.splitlines()}
    return all(_bare(line) in lines for line in example.splitlines() if line.strip())


def _bare(line: str) -> str:
    line = re.sub(r"(ftjob|file|att)-\w+", "ID", line)
    return " ".join(re.sub(r"\d+(\.\d+)?", "#", line).split())


async def _trains(product: Product) -> None:
    """Wait until the newest job has done a step."""

    def stepped(job: dict[str, Any]) -> bool:
        return bool(job["phase"] == "training" and job["progress"]["step"] > 0)

    async def newest() -> dict[str, Any]:
        jobs = (await product.get("/fine_tuning/jobs"))["data"]
        return jobs[0] if jobs else {"phase": "", "progress": {"step": 0}}

    await waiting.until(newest, stepped, interval=0.3, deadline=300)


async def _gain(product: Product, job_id: str) -> float:
    """By how much the tuned model's validation loss or reward is better than its base's."""
    report = await product.get(f"/fine_tuning/jobs/{job_id}/model/report.json")
    measured = report["validation"]
    gain = float(measured["before"] - measured["after"])
    return -gain if measured["measure"] == "reward" else gain
