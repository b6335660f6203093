"""The local stack from nothing to ready, and back to nothing.

Everything that takes time and does not wait for another part happens at the same time.
"""

import asyncio
import fcntl
import itertools
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from rekindle.local import leftover_processes, postgres, subscription_setup
from rekindle.local.layout import (
    BASE_MODELS,
    CPU_SPEED,
    REAL_MODEL,
    TINY_MODEL,
    Layout,
    model_folder,
)
from rekindle.local.parts import Crew
from rekindle.local.state_folder import CannotStart, write_json, write_private

PROGRESS_SECONDS = 10
_MAKING = {
    TINY_MODEL: "building the tiny model",
    REAL_MODEL: "downloading SmolLM2-135M-Instruct, 93 MB",
}
_INSTEAD = f"Without this download: make up MODEL={TINY_MODEL}, or make demo MODEL={TINY_MODEL}"


@asynccontextmanager
async def stack(
    layout: Layout, say: Callable[[str], None], *, keep_vms: bool = False
) -> AsyncIterator[Crew]:
    """A running stack; at the end every process that it started is gone, VMs too."""
    state = layout.state
    with state.held():
        if names := leftover_processes.end_parts(state):
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
                await asyncio.to_thread(leftover_processes.end_vms, state)


async def _start(layout: Layout, crew: Crew, say: Callable[[str], None]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_database(layout, crew, say))
            group.create_task(_azure(layout, crew))
            group.create_task(_cpu_speed(crew))
            group.create_task(_base_models(layout, crew, say))
    except ExceptionGroup as failures:
        expected, others = failures.split(CannotStart)
        if expected is None or others is not None:
            raise
        raise CannotStart("\n".join(_reasons(expected))) from failures
    await crew.start(layout.service())


async def _azure(layout: Layout, crew: Crew) -> None:
    """The emulator with a resource group in it."""
    await crew.start(layout.emulator())
    await subscription_setup.prepare(layout)


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
        create = ["key", "create", "--project", "local", "--name", "demo", "--scope", "operator"]
        printed = await crew.run("key", [sys.executable, "-m", "service.main", *create], settings)
        write_private(layout.state / "api-key", printed.strip().splitlines()[-1])


async def sign_in_token(layout: Layout, crew: Crew) -> str:
    """Return a one-time token for the console, of an operator's key of the local project."""
    create = ["sign-in", "--project", "local", "--scope", "operator"]
    told = [sys.executable, "-m", "service.main", *create]
    printed = await crew.run("sign-in", told, layout.settings(), secret=True)
    return printed.strip().splitlines()[-1]


async def _cpu_speed(crew: Crew) -> None:
    """Measure once how fast this computer trains: plans rest on it."""
    if not CPU_SPEED.exists():
        told = await crew.run("cpu-speed", [sys.executable, "-m", "trainer.process.cpu_speed"], {})
        CPU_SPEED.parent.mkdir(exist_ok=True)
        write_private(CPU_SPEED, told.split()[-1])


async def _base_models(layout: Layout, crew: Crew, say: Callable[[str], None]) -> None:
    """Blob with the base models in it."""
    async with asyncio.TaskGroup() as group:
        group.create_task(crew.start(layout.azurite()))
        for model in layout.models:
            group.create_task(_make_model(model, crew, say))
    for model in layout.models:
        stage = [sys.executable, "-m", "rekindle.stage", "--name", model]
        settings = {"REKINDLE_STORAGE": layout.storage}
        await crew.run("stage", [*stage, str(model_folder(model))], settings)


async def _make_model(model: str, crew: Crew, say: Callable[[str], None]) -> None:
    """Make the model's folder unless it is there; it appears whole or not at all."""
    folder = model_folder(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    async with _alone(folder.with_name(f"{folder.name}.lock")):
        if folder.exists():
            return
        doing = _MAKING[model]
        say(f"{doing} (once)")
        fresh = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)  # of a stack that was killed
        making = crew.run(folder.name, [sys.executable, "-m", BASE_MODELS[model], str(fresh)], {})
        try:
            await _with_progress(making, doing, say)
        except CannotStart as error:
            instead = f"\n{_INSTEAD}" if model == REAL_MODEL else ""
            raise CannotStart(f"{error}{instead}") from error
        fresh.rename(folder)


@asynccontextmanager
async def _alone(path: Path) -> AsyncIterator[None]:
    """Hold a lock file; wait for another stack that has it."""
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.5)
        yield


async def _with_progress(
    work: Coroutine[None, None, object], doing: str, say: Callable[[str], None]
) -> None:
    """Say every ten seconds that the work goes on."""
    task = asyncio.create_task(work)
    try:
        for seconds in itertools.count(PROGRESS_SECONDS, PROGRESS_SECONDS):
            done, _ = await asyncio.wait({task}, timeout=PROGRESS_SECONDS)
            if done:
                break
            say(f"still {doing}: {seconds} s")
    finally:
        task.cancel()
    await task


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
