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
_MODEL_ACTIONS = {
    TINY_MODEL: "building the tiny model",
    REAL_MODEL: "downloading SmolLM2-135M-Instruct, 93 MB",
}
_AVOID_DOWNLOAD = (
    f"To avoid the download: make up MODEL={TINY_MODEL}, or make demo MODEL={TINY_MODEL}"
)


@asynccontextmanager
async def run_stack(
    layout: StackLayout, notify: Callable[[str], None], *, keep_vms: bool = False
) -> AsyncIterator[PartRunner]:
    """Run the stack while the context is open; stop every process at the end, VMs included."""
    state = layout.state
    with state.lock():
        if names := leftover_processes.stop_parts(state):
            notify(f"stopped processes of an earlier stack: {', '.join(names)}")
        layout.ports.require_free()
        write_json(state / "images.json", layout.images)
        runner = PartRunner(state, notify, layout.restarts)
        try:
            await _start_parts(layout, runner, notify)
            write_json(state / "stack.json", _stack_info(layout))
            yield runner
        finally:
            (state / "stack.json").unlink(missing_ok=True)
            await runner.stop_parts()
            if not keep_vms:
                await asyncio.to_thread(leftover_processes.kill_vms, state)


async def _start_parts(
    layout: StackLayout, runner: PartRunner, notify: Callable[[str], None]
) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_start_database(layout, runner, notify))
            group.create_task(_start_azure(layout, runner))
            group.create_task(_measure_cpu_speed(runner))
            group.create_task(_stage_base_models(layout, runner, notify))
    except ExceptionGroup as failures:
        expected, unexpected = failures.split(StackStartError)
        if expected is None or unexpected is not None:
            raise
        raise StackStartError("\n".join(_messages(expected))) from failures
    await runner.start_part(layout.service())


async def _start_azure(layout: StackLayout, runner: PartRunner) -> None:
    """Start the emulator and create its resource group."""
    await runner.start_part(layout.emulator())
    await subscription_setup.prepare_subscription(layout)


async def _start_database(
    layout: StackLayout, runner: PartRunner, notify: Callable[[str], None]
) -> None:
    """Start PostgreSQL with the current schema and an API key."""
    data = layout.state / "postgres"
    if not data.exists():
        notify("creating the database (once)")
    await asyncio.to_thread(postgres.create_cluster, data)
    await runner.start_part(layout.postgres())
    await asyncio.to_thread(postgres.create_database, data)
    settings = layout.service_settings()
    await runner.run_program("migrate", [sys.executable, "-m", "service.main", "migrate"], settings)
    if not (layout.state / "api-key").exists():
        create = ["key", "create", "--project", "local", "--name", "demo", "--scope", "operator"]
        printed = await runner.run_program(
            "key", [sys.executable, "-m", "service.main", *create], settings
        )
        write_private(layout.state / "api-key", printed.strip().splitlines()[-1])


async def create_sign_in_token(layout: StackLayout, runner: PartRunner) -> str:
    """Return a one-time sign-in token for the console, with operator scope."""
    create = ["sign-in", "--project", "local", "--scope", "operator"]
    command = [sys.executable, "-m", "service.main", *create]
    printed = await runner.run_program("sign-in", command, layout.service_settings(), secret=True)
    return printed.strip().splitlines()[-1]


async def _measure_cpu_speed(runner: PartRunner) -> None:
    """Measure once how fast this machine trains, as plans depend on it."""
    if not CPU_SPEED.exists():
        output = await runner.run_program(
            "cpu-speed", [sys.executable, "-m", "trainer.process.cpu_speed"], {}
        )
        CPU_SPEED.parent.mkdir(exist_ok=True)
        write_private(CPU_SPEED, output.split()[-1])


async def _stage_base_models(
    layout: StackLayout, runner: PartRunner, notify: Callable[[str], None]
) -> None:
    """Start Blob and stage the base models."""
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.start_part(layout.azurite()))
        for model in layout.models:
            group.create_task(_make_model(model, runner, notify))
    for model in layout.models:
        stage = [sys.executable, "-m", "rekindle.stage", "--name", model]
        settings = {"REKINDLE_STORAGE": layout.storage}
        await runner.run_program("stage", [*stage, str(model_folder(model))], settings)


async def _make_model(model: str, runner: PartRunner, notify: Callable[[str], None]) -> None:
    """Create the model's folder unless it exists; it appears complete or not at all."""
    folder = model_folder(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    async with _file_lock(folder.with_name(f"{folder.name}.lock")):
        if folder.exists():
            return
        action = _MODEL_ACTIONS[model]
        notify(f"{action} (once)")
        temporary = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(temporary, ignore_errors=True)  # left by a killed stack
        creation = runner.run_program(
            folder.name, [sys.executable, "-m", BASE_MODELS[model], str(temporary)], {}
        )
        try:
            await _report_progress(creation, action, notify)
        except StackStartError as error:
            hint = f"\n{_AVOID_DOWNLOAD}" if model == REAL_MODEL else ""
            raise StackStartError(f"{error}{hint}") from error
        temporary.rename(folder)


@asynccontextmanager
async def _file_lock(path: Path) -> AsyncIterator[None]:
    """Hold a lock file; wait for another stack that has it."""
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.5)
        yield


async def _report_progress(
    work: Coroutine[None, None, object], action: str, notify: Callable[[str], None]
) -> None:
    """Report progress of the work every ten seconds."""
    task = asyncio.create_task(work)
    try:
        for seconds in itertools.count(PROGRESS_SECONDS, PROGRESS_SECONDS):
            done, _ = await asyncio.wait({task}, timeout=PROGRESS_SECONDS)
            if done:
                break
            notify(f"still {action}: {seconds} s")
    finally:
        task.cancel()
    await task


def _messages(failures: BaseExceptionGroup[Exception]) -> Iterator[str]:
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _messages(failure)
        else:
            yield str(failure)


def _stack_info(layout: StackLayout) -> dict[str, str]:
    """Return the addresses and keys of the stack for other programs on this machine."""
    return {
        "api_url": layout.api_url,
        "api_key": (layout.state / "api-key").read_text().strip(),
        "arm_url": layout.arm_url,
        "ca": str(layout.ca),
        "blob_url": layout.blob_url,
        "storage": layout.storage,
        "metadata_url": layout.metadata_url,
        "database_url": layout.service_settings()["REKINDLE_DATABASE_URL"],
    }
