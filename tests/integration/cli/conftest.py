"""A real service on the loopback, and the command line run against it as a user would."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from typer.testing import CliRunner

from rekindle.cli.main import app
from service.api.app import make_app
from tests.served import served
from tests.world import DATASET, World


@contextlib.contextmanager
def ctrl_c_is_heard() -> Iterator[None]:
    """Let processes started within receive Ctrl-C.

    A shell starts background jobs with SIGINT ignored, and the processes that a test starts would
    inherit that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Ended:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON
        """What it printed, which must be one document and nothing else."""
        return json.loads(self.out)


async def invoke(
    url: str, key: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> Ended:
    """Run `rekindle` beside this service, with this key in the environment."""
    env: dict[str, str | None] = {
        "REKINDLE_URL": url,
        "REKINDLE_API_KEY": key,
        "OPENAI_BASE_URL": None,
        "OPENAI_API_KEY": None,
        "COLUMNS": "160",
        "NO_COLOR": "1",
        **environment,
    }
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


@dataclass(frozen=True)
class Shell:
    """A shell in an empty folder whose environment names the service and a key."""

    url: str
    key: str
    folder: Path
    world: World
    switch: "Switch"

    async def run(self, *arguments: str, **environment: str) -> Ended:
        """Run `rekindle` with these arguments to its end."""
        return await invoke(self.url, self.key, arguments, environment)

    def dataset(self, name: str = "chats.jsonl", data: bytes = DATASET) -> str:
        """Write a training file into the shell's folder and return its path."""
        path = self.folder / name
        path.write_bytes(data)
        return str(path)


class Switch:
    """The service behind a gateway that can say 503 in its place, or refuse with 409."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.is_away = False
        self.away_for = ""  # paths that end so; "": none
        self.conflicts_for = ""  # likewise
        self.knows_ranges = True  # else every answer is the whole
        self.refused = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse."""
        if self.conflicts_for and scope.get("path", "").endswith(self.conflicts_for):
            error = {"message": "not today", "code": "invalid_job_state"}
            await JSONResponse({"error": error}, status_code=409)(scope, receive, send)
            return
        is_away = bool(self.away_for) and scope.get("path", "").endswith(self.away_for)
        if not self.is_away and not is_away:
            headers = [h for h in scope.get("headers", ()) if self.knows_ranges or h[0] != b"range"]
            await self._app({**scope, "headers": headers}, receive, send)
            return
        self.refused += 1
        await PlainTextResponse("no upstream", status_code=503)(scope, receive, send)


@pytest.fixture
async def shell(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Shell]:
    """Yield a shell whose commands talk to the service."""
    monkeypatch.chdir(tmp_path)
    switch = Switch(make_app(world.parts))
    listening = asyncio.create_task(world.listener.run())
    async with served(switch) as url:
        yield Shell(url, world.key, tmp_path, world, switch)
    listening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await listening
