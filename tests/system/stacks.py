"""`make up` as a subprocess, for tests that need the whole product."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from contract.choices import Engine
from rekindle.local.layout import TINY_MODEL
from tests import waiting

START_SECONDS = 180.0


@dataclass(frozen=True)
class Up:
    """A running `make up`."""

    process: asyncio.subprocess.Process
    state: Path
    port: int

    def facts(self) -> dict[str, str]:
        """Return what the stack tells programs about itself."""
        facts: dict[str, str] = json.loads((self.state / "stack.json").read_text())
        return facts

    def printed(self) -> str:
        """Return what the stack printed for people."""
        return (self.state / "printed").read_text()


@asynccontextmanager
async def up(
    state: Path,
    port: int,
    model: str = TINY_MODEL,
    engines: Sequence[Engine] = (Engine.SCALE_SET,),
    **settings: str,
) -> AsyncIterator[Up]:
    """Start it and wait until it is ready or has ended; end it afterwards.

    With these settings of the service, beyond those that the stack gives it.
    """
    command = [
        sys.executable,
        "-m",
        "rekindle.local.up",
        "--state",
        str(state),
        "--port",
        str(port),
    ]
    command += ["--model", model, *(f"--engine={engine}" for engine in engines)]
    with _printing(state) as output:
        environment = {**os.environ, **settings}  # noqa: TID251 - what `make up` would inherit
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, env=environment
        )
    running = Up(process, state, port)

    async def over() -> bool:
        return (state / "stack.json").exists() or process.returncode is not None

    try:
        await waiting.until(over, bool, deadline=START_SECONDS)
        yield running
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()


def _printing(state: Path) -> TextIO:
    state.mkdir(exist_ok=True)
    return (state / "printed").open("w")
