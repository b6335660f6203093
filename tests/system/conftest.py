"""What tests of the whole product share."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from rekindle.running import Facts
from tests.system.product import Product
from tests.system.stacks import four_free_ports, up


@pytest.fixture
async def product(tmp_path: Path) -> AsyncIterator[Product]:
    async with up(tmp_path / "state", four_free_ports()) as running:
        stack = Facts.read(running.state)
        headers = {"Authorization": f"Bearer {stack.api_key}"}
        url = f"{stack.api_url}/v1"
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as http:
            yield Product(stack, http)
