"""Start the whole local stack, and stop it.

Parts that do not depend on each other start in parallel.
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
    StackLayout,
    model_folder,
)
from rekindle.local.parts import PartRunner
from rekindle.local.state_folder import StackStartError, write_json, write_private

PROGRESS_SECONDS = 10
_MAKING = {
    TINY_MODEL: "building the tiny model",
    REAL_MODEL: "downloading SmolLM2-135M-Instruct, 93 MB",
}
_INSTEAD = f"To avoid the download: make up MODEL={TINY_MODEL}, or make demo MODEL={TINY_MODEL}"


@asynccontextmanager
async def stack(
    layout: StackLayout, say: Callable[[str], None], *, keep_vms: bool = False
) -> AsyncIterator[PartRunner]:
    """Run the stack while the context is open; stop every process at the end, VMs included."""
    state = layout.state
    with state.held():
        if names := leftover_processes.end_parts(state):
            say(f"stopped processes of an earlier stack: {', '.join(names)}")
        layout.ports.require_free()
        write_json(state / "images.json", layout.images)
        crew = PartRunner(state, say, layout.restarts)
        try:
            await _start(layout, crew, say)
            write_json(state / "stack.json", _facts(layout))
            yield crew
        finally:
            (state / "stack.json").unlink(missing_ok=True)
            await crew.stop()
            if not keep_vms:
                await asyncio.to_thread(leftover_processes.end_vms, state)


async def _start(layout: StackLayout, crew: PartRunner, say: Callable[[str], None]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_database(layout, crew, say))
            group.create_task(_azure(layout, crew))
            group.create_task(_cpu_speed(crew))
            group.create_task(_base_models(layout, crew, say))
    except ExceptionGroup as failures:
        expected, others = failures.split(StackStartError)
        if expected is None or others is not None:
            raise
        raise StackStartError("\n".join(_reasons(expected))) from failures
    await crew.start(layout.service())


async def _azure(layout: StackLayout, crew: PartRunner) -> None:
    """Start the emulator and create its resource group."""
    await crew.start(layout.emulator())
    await subscription_setup.prepare(layout)


async def _database(layout: StackLayout, crew: PartRunner, say: Callable[[str], None]) -> None:
    """Start PostgreSQL with the current schema and an API key."""
    data = layout.state / "postgres"
    if not data.exists():
        say("creating the database (once)")
    await asyncio.to_thread(postgres.initialize, data)
    await crew.start(layout.postgres())
    await asyncio.to_thread(postgres.create_database, data)
    settings = layout.settings()
    await crew.run("migrate", [sys.executable, "-m", "service.main", "migrate"], settings)
    if not (layout.state / "api-key").exists():
        create = ["key", "create", "--project", "local", "--name", "demo", "--scope", "operator"]
        printed = await crew.run("key", [sys.executable, "-m", "service.main", *create], settings)
        write_private(layout.state / "api-key", printed.strip().splitlines()[-1])


async def sign_in_token(layout: StackLayout, crew: PartRunner) -> str:
    """Return a one-time sign-in token for the console, with operator scope."""
    create = ["sign-in", "--project", "local", "--scope", "operator"]
    told = [sys.executable, "-m", "service.main", *create]
    printed = await crew.run("sign-in", told, layout.settings(), secret=True)
    return printed.strip().splitlines()[-1]


async def _cpu_speed(crew: PartRunner) -> None:
    """Measure once how fast this machine trains, as plans depend on it."""
    if not CPU_SPEED.exists():
        told = await crew.run("cpu-speed", [sys.executable, "-m", "trainer.process.cpu_speed"], {})
        CPU_SPEED.parent.mkdir(exist_ok=True)
        write_private(CPU_SPEED, told.split()[-1])


async def _base_models(layout: StackLayout, crew: PartRunner, say: Callable[[str], None]) -> None:
    """Start Blob and stage the base models."""
    async with asyncio.TaskGroup() as group:
        group.create_task(crew.start(layout.azurite()))
        for model in layout.models:
            group.create_task(_make_model(model, crew, say))
    for model in layout.models:
        stage = [sys.executable, "-m", "rekindle.stage", "--name", model]
        settings = {"REKINDLE_STORAGE": layout.storage}
        await crew.run("stage", [*stage, str(model_folder(model))], settings)


async def _make_model(model: str, crew: PartRunner, say: Callable[[str], None]) -> None:
    """Create the model's folder unless it exists; it appears complete or not at all."""
    folder = model_folder(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    async with _alone(folder.with_name(f"{folder.name}.lock")):
        if folder.exists():
            return
        doing = _MAKING[model]
        say(f"{doing} (once)")
        fresh = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)  # left by a killed stack
        making = crew.run(folder.name, [sys.executable, "-m", BASE_MODELS[model], str(fresh)], {})
        try:
            await _with_progress(making, doing, say)
        except StackStartError as error:
            instead = f"\n{_INSTEAD}" if model == REAL_MODEL else ""
            raise StackStartError(f"{error}{instead}") from error
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
    """Report progress of the work every ten seconds."""
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


def _facts(layout: StackLayout) -> dict[str, str]:
    """Return the addresses and keys of the stack for other programs on this machine."""
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
