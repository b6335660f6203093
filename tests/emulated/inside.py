"""The emulator in the test's process, on a clock that tests move; its VMs run no processes."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette

from emulator.__main__ import AbortableConnection, EmulatorServer
from emulator.app import arm, metadata_service
from emulator.core.tls import certificates
from emulator.fabric import EmulatorSettings, Fabric
from tests.clock import Clock
from tests.emulated.process import GROUP, SUBSCRIPTION, TENANT
from tests.waiting import until

API = {"api-version": "2026-04-01"}
HERE = f"/subscriptions/{SUBSCRIPTION}"
GROUP_ID = f"{HERE}/resourceGroups/{GROUP}"
PROVIDERS = f"{GROUP_ID}/providers"
SETS = f"{PROVIDERS}/Microsoft.Compute/virtualMachineScaleSets"
SET = f"{SETS}/rk-1"


@dataclass
class Inside:
    """An emulator, its clock, and clients that are signed in."""

    fabric: Fabric
    clock: Clock
    arm: httpx.AsyncClient
    metadata: httpx.AsyncClient
    app: Starlette  # ARM application

    async def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Advance the clock by ``seconds``, and run everything due after each ``step`` seconds."""
        while seconds > 0:
            self.clock.advance(seconds=min(step, seconds))
            seconds -= step
            await self.fabric.step()

    async def follow(self, address: str) -> httpx.Response:
        """Send a GET to an address from an answer, with the query of the address only."""
        return await self.arm.get(address, params=dict(httpx.URL(address).params))

    async def make_group(self, name: str = GROUP) -> None:
        """Create a resource group in eastus."""
        body = {"location": "eastus"}
        answer = await self.arm.put(f"{HERE}/resourceGroups/{name}", json=body)
        answer.raise_for_status()


@asynccontextmanager
async def emulator_inside(
    folder: Path,
    clock: Clock,
    *,
    empty: bool = False,
    **settings: Any,  # noqa: ANN401 - whatever Settings take
) -> AsyncIterator[Inside]:
    """Run an emulator with its state in ``folder``; the same folder again is a restart.

    A new one has the tests' resource group, unless it is to be ``empty``.
    """
    is_new = not (folder / "state.db").exists()
    options = EmulatorSettings(folder=folder, hollow=True, **settings)
    fabric = Fabric(options, "http://metadata", lambda: clock().timestamp())
    app = arm(fabric)
    service = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    metadata = httpx.ASGITransport(app=metadata_service(fabric), raise_app_exceptions=True)
    async with (
        httpx.AsyncClient(transport=service, base_url="https://azure", params=API) as client,
        httpx.AsyncClient(transport=metadata, base_url="http://metadata") as inner,
    ):
        form = {"client_id": "tests", "client_secret": "any", "scope": "https://azure/.default"}
        token = (await client.post(f"/{TENANT}/oauth2/v2.0/token", data=form)).json()
        client.headers["authorization"] = f"Bearer {token['access_token']}"
        inside = Inside(fabric, clock, client, inner, app)
        if is_new and not empty:
            await inside.make_group()
        yield inside


@dataclass(frozen=True)
class Reached:
    """Address of the emulator's ARM over TLS."""

    arm_url: str
    ca: str  # file with the CA certificate


@asynccontextmanager
async def over_tls(inside: Inside) -> AsyncIterator[Reached]:
    """Serve the emulator's ARM on a local port, for Azure's own clients; the clock is unchanged."""
    ca, key = certificates(inside.fabric.settings.folder / "tls")
    quiet: dict[str, Any] = {"lifespan": "off", "log_level": "warning", "access_log": False}
    config = uvicorn.Config(inside.app, http=AbortableConnection, ssl_certfile=key, **quiet)
    # With an explicit protocol asyncio sets TCP_NODELAY, which saves 40 ms for each small answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = EmulatorServer(config)
    serving = asyncio.create_task(server.serve([listener]))
    await until(lambda: _is_up(server), bool, interval=0.01)
    try:
        yield Reached(f"https://localhost:{listener.getsockname()[1]}", str(ca))
    finally:
        server.should_exit = True
        await serving


async def _is_up(server: EmulatorServer) -> bool:
    return server.started
