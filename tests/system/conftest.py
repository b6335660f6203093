"""What tests of the whole product share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from bench import ports
from contract.choices import Engine
from rekindle.local.running_stack import StackInfo
from tests.system.product import Product, up


@pytest.fixture
async def product(tmp_path: Path) -> AsyncIterator[Product]:
    async with opened(tmp_path) as local_product:
        yield local_product


@asynccontextmanager
async def opened(folder: Path, *engines: Engine, **settings: str) -> AsyncIterator[Product]:
    """Run a stack with these service settings and yield a client; default engine: scale sets."""
    names = engines or (Engine.SCALE_SET,)
    async with up(folder / "state", ports.free(4), engines=names, **settings) as running:
        stack = StackInfo.read(running.state)
        headers = {"Authorization": f"Bearer {stack.api_key}"}
        url = f"{stack.api_url}/v1"
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as http:
            yield Product(stack, http)
