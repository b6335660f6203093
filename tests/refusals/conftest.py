"""One world for all rows of all tables: what is refused changes nothing."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import text

from service.api.app import make_app
from service.db.core.engine import make_engine
from tests.clock import Clock
from tests.integration.cli.conftest import Ended, invoke
from tests.postgres import Emptier
from tests.refusals import states, table
from tests.served import served
from tests.world import World, open_world

KEPT = ("jobs", "events", "files", "upload_parts", "api_keys", "plans")


@dataclass
class Stage:
    """The world of all rows, and its named states."""

    world: World
    states: dict[str, Any]
    url: str

    async def run(self, command: Sequence[str], **environment: str) -> Ended:
        """Run `rekindle` with these arguments to its end."""
        return await invoke(self.url, self.world.key, command, environment)

    async def send(self, row: table.Row) -> httpx.Response:
        """Send a row's request."""
        method, _, path = str(self.filled(row.ask)).partition(" ")
        headers = {"x-request-id": "req-row", **self.filled(row.group.headers)}
        if key := self.states.get(row.group.key):
            headers["authorization"] = f"Bearer {key}"
        http: httpx.AsyncClient = self.states[row.group.service]
        body, change = self.filled(row.group.body), self.filled(row.change)
        if isinstance(change, str | bytes):
            headers = {"content-type": "application/json"} | headers
            return await http.request(method, path, headers=headers, content=change)
        content = table.apply_change(body, change)
        return await http.request(method, path, headers=headers, json=content)

    def filled(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """Return it with the states in it."""
        return table.fill_states(value, self.states)

    async def count_rows(self) -> dict[str, int]:
        """How many rows there are of what users make, and blobs."""
        count = ", ".join(f"(select count(*) from {name})" for name in KEPT)
        async with self.world.engine.connect() as conn:
            (counts,) = await conn.execute(text(f"select {count}"))
        store = self.world.store
        blobs = sum(map(len, store._containers.values())), len(store._staged)
        return dict(zip((*KEPT, "blobs", "staged"), (*counts, *blobs), strict=True))


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def stage(
    migrated: str, emptier: Emptier, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    """Yield the world with all named states, served on the loopback as well."""
    folder = tmp_path_factory.mktemp("refusals")
    engine, clock = make_engine(migrated, pool_size=10), Clock()
    try:
        async with (
            open_world(engine, migrated, clock) as world,
            states.open_states(world) as named_states,
            served(make_app(world.parts)) as url,
        ):
            yield Stage(world, named_states | states.files_in(folder), url)
    finally:
        await engine.dispose()
        emptier.empty()
