"""`service.main` on fakes: `python -m bench.scale.parts.face SOCKET api|reconciler ...`.

All code of the service is the production code. Its adapters call the fakes in the world process.
"""

import asyncio
import cProfile
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from bench.scale.parts.line import Line
from service import main, serving, telemetry
from service.adapters import Adapters, Clock, OpenAdapters, join_adapters
from service.cloud.provider import CloudProvider
from service.domain.cloud.fleet import Price
from service.pricing.fixed import FixedPrices
from service.settings import Settings
from service.storage.fake import MemoryStore
from service.storage.store import Blob

PRICE = Price(hourly=Decimal("8.44"), on_demand_hourly=Decimal("32.77"))


class Far:
    """Proxy of a part of the world process; every method is a remote call."""

    def __init__(self, line: Line, part: str) -> None:
        self._line, self._part = line, part

    def __getattr__(self, verb: str) -> Any:  # noqa: ANN401 - a verb
        return partial(self._line.call, f"{self._part}.{verb}")

    async def close(self) -> None:
        """Close the connection."""
        await self._line.close()


class FarStore(MemoryStore):
    """Blob store in the world process; streams and local operations are done here."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._far = Far(line, "store")
        plain = ("create_container", "delete_container", "read", "properties", "write", "delete")
        for verb in (
            *plain,
            "set_access_policies",
            "list_blobs",
            "list_stored",
            "set_tier",
            "list_containers",
        ):
            setattr(self, verb, getattr(self._far, verb))

    async def stream(
        self,
        container: str,
        name: str,
        *,
        offset: int = 0,
        if_match: str = "",  # noqa: ARG002 - no concurrent writers
    ) -> AsyncIterator[bytes]:
        data, _ = await self.read(container, name)
        yield data[offset:]

    async def upload(self, container: str, name: str, chunks: AsyncIterator[bytes]) -> Blob:
        data = b"".join([chunk async for chunk in chunks])
        etag = await self.write(container, name, data)
        return Blob(name=name, size=len(data), etag=etag)


def opened(socket: Path) -> OpenAdapters:
    """Return a replacement of `service.adapters.adapters`."""

    @asynccontextmanager
    async def adapters(settings: Settings, now: Clock) -> AsyncIterator[Adapters]:
        cloud: Any = Far(Line(socket), "cloud")
        providers: tuple[CloudProvider, FarStore] = (cloud, FarStore(Line(socket)))
        prices = FixedPrices(dict.fromkeys(settings.offerings, PRICE))
        async with join_adapters(settings, now, *providers, {}, prices) as all_adapters:
            yield all_adapters

    return adapters


def run(socket: Path) -> None:
    """Run `service.main` with the fake adapters."""
    options = main.parse_arguments()
    telemetry.set_up("WARNING")
    settings = Settings()  # type: ignore[call-arg]  # the environment fills it
    with asyncio.Runner(loop_factory=serving.event_loop()) as runner:
        runner.run(serving.serve(settings, options, main.now, opened(socket)))


def _profiled(socket: Path, folder: str) -> None:
    profile = cProfile.Profile()
    try:
        profile.runcall(run, socket)
    finally:
        at = datetime.now(UTC)
        profile.dump_stats(Path(folder) / f"{sys.argv[1]}-{os.getpid()}-{at:%H%M%S}.prof")


if __name__ == "__main__":
    where = Path(sys.argv.pop(1))
    if folder := os.environ.get("BENCH_PROFILES"):
        _profiled(where, folder)
    else:
        run(where)
