"""The local stack from nothing to ready, and back to nothing.

Everything that takes time and does not wait for another part happens at the same time.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from rekindle import leftovers, postgres, subscription
from rekindle.layout import BASE_MODEL, Layout
from rekindle.parts import Crew
from rekindle.state import CannotStart, write_json, write_private


@asynccontextmanager
async def stack(
    layout: Layout, say: Callable[[str], None], *, keep_vms: bool = False
) -> AsyncIterator[Crew]:
    """A running stack; at the end every process that it started is gone, VMs too."""
    state = layout.state
    with state.held():
        if names := leftovers.end_parts(state):
            say(f"ended what the last stack left running: {', '.join(names)}")
        layout.ports.require_free()
        write_json(state / "images.json", layout.images)
        crew = Crew(state, say, layout.restarts)
        try:
            await _start(layout, crew, say)
            write_json(state / "stack.json", _facts(layout))
            yield crew
        finally:
            (state / "stack.json").unlink(missing_ok=True)
            await crew.stop()
            if not keep_vms:
                await asyncio.to_thread(leftovers.end_vms, state)


async def _start(layout: Layout, crew: Crew, say: Callable[[str], None]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_database(layout, crew, say))
            group.create_task(_azure(layout, crew))
            group.create_task(_base_model(layout, crew, say))
    except ExceptionGroup as failures:
        expected, others = failures.split(CannotStart)
        if expected is None or others is not None:
            raise
        raise CannotStart("\n".join(_reasons(expected))) from failures
    await crew.start(layout.service())


async def _azure(layout: Layout, crew: Crew) -> None:
    """The emulator with a resource group in it."""
    await crew.start(layout.emulator())
    await subscription.prepare(layout)


async def _database(layout: Layout, crew: Crew, say: Callable[[str], None]) -> None:
    """PostgreSQL with the schema of this version and one API key."""
    data = layout.state / "postgres"
    if not data.exists():
        say("making the database (once)")
    await asyncio.to_thread(postgres.initialize, data)
    await crew.start(layout.postgres())
    await asyncio.to_thread(postgres.create_database, data)
    settings = layout.settings()
    await crew.run("migrate", [sys.executable, "-m", "service.main", "migrate"], settings)
    if not (layout.state / "api-key").exists():
        create = ["key", "create", "--project", "local", "--name", "demo"]
        printed = await crew.run("key", [sys.executable, "-m", "service.main", *create], settings)
        write_private(layout.state / "api-key", printed.strip().splitlines()[-1])


async def _base_model(layout: Layout, crew: Crew, say: Callable[[str], None]) -> None:
    """Blob with the tiny model in it."""
    async with asyncio.TaskGroup() as group:
        group.create_task(crew.start(layout.azurite()))
        group.create_task(_tiny_model(layout, crew, say))
    stage = [sys.executable, "-m", "rekindle.stage", "--name", BASE_MODEL]
    settings = {"REKINDLE_STORAGE": layout.storage}
    await crew.run("stage", [*stage, str(layout.tiny_model)], settings)


async def _tiny_model(layout: Layout, crew: Crew, say: Callable[[str], None]) -> None:
    """The model's folder, built once and then renamed: whole or not there."""
    if layout.tiny_model.exists():
        return
    say("building the tiny model (once)")
    fresh = layout.state / "tiny-llama.new"
    await crew.run("tiny-model", [sys.executable, "-m", "trainer.tiny", str(fresh)], {})
    fresh.rename(layout.tiny_model)


def _reasons(failures: BaseExceptionGroup[Exception]) -> Iterator[str]:
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _reasons(failure)
        else:
            yield str(failure)


def _facts(layout: Layout) -> dict[str, str]:
    """What other programs on this machine need to know of the running stack."""
    return {
        "api_url": layout.api_url,
        "api_key": (layout.state / "api-key").read_text().strip(),
        "arm_url": layout.arm_url,
        "ca": str(layout.ca),
        "blob_url": layout.blob_url,
        "storage": layout.storage,
        "metadata_url": layout.metadata_url,
        "database_url": layout.settings()["REKINDLE_DATABASE_URL"],
    }
