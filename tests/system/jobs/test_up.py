"""The whole local stack as a user starts it: `make up`, used, interrupted, started again."""

from pathlib import Path

import httpx
import psutil
import pytest

from bench import ports
from tests import waiting
from tests.system.product import Up, up


@pytest.fixture(scope="module")
def port() -> int:
    """Return the first of four consecutive ports that are free now."""
    return ports.free(4)


async def test_the_stack_works_alone_and_leaves_no_process(tmp_path: Path, port: int) -> None:
    async with up(tmp_path / "state", port) as stack, up(tmp_path / "other", port) as second:
        facts = stack.facts()
        bearer = {"Authorization": f"Bearer {facts['api_key']}"}
        async with httpx.AsyncClient(trust_env=False) as http:
            jobs = await http.get(f"{facts['api_url']}/v1/fine_tuning/jobs", headers=bearer)
        parts = psutil.Process(stack.process.pid).children(recursive=True)
        printed = await _printed(stack)

    assert jobs.json()["data"] == []
    assert f"OPENAI_BASE_URL={facts['api_url']}/v1" in printed
    assert len(parts) > 4
    assert [p for p in parts if p.is_running()] == []
    assert stack.process.returncode == 0
    assert f"port {port} (for api) is not available" in second.printed()
    assert second.process.returncode == 1

    async with up(tmp_path / "state", port) as second_stack:
        assert second_stack.facts()["api_url"].endswith(f":{port}")


async def _printed(stack: Up) -> str:
    """Wait for the sign-in link and return what the stack printed.

    It prints the link for people a moment after programs can use the stack.
    """

    async def look() -> str:
        return stack.printed()

    return await waiting.until(look, lambda text: "OPENAI_BASE_URL" in text, deadline=60)
