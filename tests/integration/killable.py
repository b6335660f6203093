"""A database, a cloud and a store under which the service dies after its n-th effect.

What has no effect outside (a read, a transaction that wrote nothing or was rolled back) is no
place of its own: to die after it is to die after the effect before it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.cloud.fake import FakeCloud
from service.domain.cloud.fleet import ScaleSet, ScaleSetSpec
from service.storage.fake import MemoryStore
from service.storage.store import SMALL


class Killed(BaseException):
    """kill -9: nothing in the service may catch it."""


@dataclass
class Reaper:
    """Lets one process do ``lifetime`` effects, none after them; None: it lives for ever."""

    lifetime: int | None = None
    effects: list[str] = field(default_factory=list)

    def alive(self) -> None:
        """Before each call: tasks beside the one that died die with it."""
        if self.lifetime is not None and len(self.effects) >= self.lifetime:
            raise Killed

    def done(self, effect: str) -> None:
        """After each effect."""
        self.effects.append(effect)
        self.alive()


class KillableEngine(AsyncEngine):
    """The same database, for a process that may die."""

    def __init__(self, engine: AsyncEngine, reaper: Reaper) -> None:
        super().__init__(engine.sync_engine)
        self.reaper = reaper

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        self.reaper.alive()
        async with super().begin() as conn:
            yield conn
            self.reaper.alive()
            xid = await conn.execute(text("select pg_current_xact_id_if_assigned()"))
            wrote = xid.scalar_one() is not None
        if wrote:
            self.reaper.done("commit")


@dataclass
class KillableCloud(FakeCloud):
    """The fake cloud, which outlives its callers and counts what it has really made."""

    reaper: Reaper = field(default_factory=Reaper)
    created: list[str] = field(default_factory=list)

    async def create(self, spec: ScaleSetSpec) -> None:
        self.reaper.alive()
        before = self.costing()
        await super().create(spec)
        self.created += self.costing() - before
        self.reaper.done("create")

    async def get(self, name: str) -> ScaleSet:
        self.reaper.alive()
        return await super().get(name)

    async def delete(self, name: str) -> None:
        self.reaper.alive()
        await super().delete(name)
        self.reaper.done("delete")


@dataclass
class KillableStore(MemoryStore):
    """A process's view of ``shared``."""

    shared: MemoryStore = field(default_factory=MemoryStore)
    reaper: Reaper = field(default_factory=Reaper)

    async def create_container(self, container: str) -> None:
        self.reaper.alive()
        await self.shared.create_container(container)
        self.reaper.done("create container")

    async def read(self, container: str, name: str, *, most: int = SMALL) -> tuple[bytes, str]:
        self.reaper.alive()
        return await self.shared.read(container, name, most=most)

    async def write(
        self, container: str, name: str, data: bytes, *, if_match: str = "", if_absent: bool = False
    ) -> str:
        self.reaper.alive()
        etag = await self.shared.write(
            container, name, data, if_match=if_match, if_absent=if_absent
        )
        self.reaper.done(f"write {name}")
        return etag
