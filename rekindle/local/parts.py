"""Run the stack's programs: start with a timeout, watch, restart, and stop in order.

Each runs in its own session, so that Ctrl-C reaches only the stack, which stops the parts one by
one. A part writes its process id before it becomes the program, so that the next stack finds and
stops what a killed stack left running. STATE/ready/NAME has that id once the part is ready.
"""

import asyncio
import os
import pwd
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.local.state_folder import StackStartError, StateFolder

# Environment variable of every process of a stack: its state folder.
STACK_VARIABLE = "REKINDLE_STACK"
HOLD_FOLDER = "held"  # folder: a part named in it does not restart before the time in the file
TAIL_LINES = 15
MAX_RESTARTS = 5  # of one part within RESTART_WINDOW_SECONDS
RESTART_WINDOW_SECONDS = 60.0
RESTART_PAUSE_SECONDS = 0.5  # before the second restart in a row and later ones
GRACE_SECONDS = 10.0
_WRITE_PID_THEN_EXEC = 'echo $$ >"$0" && exec "$@"'


@dataclass(frozen=True, kw_only=True)
class StackPart:
    """One long-running program of the stack."""

    name: str
    argv: Sequence[str]
    ready: Callable[[], Awaitable[bool]]
    env: Mapping[str, str] = field(default_factory=dict)
    ready_within: float = 60.0
    stop_signal: signal.Signals = signal.SIGTERM
    user: str | None = None


class PartRunner:
    """Runs the parts of one stack; more than ``max_restarts`` of a part in a minute end it."""

    def __init__(
        self, state: StateFolder, notify: Callable[[str], None], max_restarts: int = MAX_RESTARTS
    ) -> None:
        self._state = state
        self._notify = notify
        self._max_restarts = max_restarts
        self._running: dict[str, tuple[StackPart, asyncio.subprocess.Process]] = {}
        self._watchers: list[asyncio.Task[None]] = []
        (state / "logs").mkdir(mode=0o700, exist_ok=True)  # one log contains a new API key
        for folder in ("pids", "ready", HOLD_FOLDER):
            (state / folder).mkdir(exist_ok=True)

    async def start_part(self, part: StackPart) -> None:
        """Start a part and wait until it is ready; raise StackStartError with its last lines."""
        await self._spawn(part)
        self._watchers.append(asyncio.create_task(self._keep_running(part), name=part.name))

    async def run_program(
        self, name: str, argv: Sequence[str], env: Mapping[str, str], *, secret: bool = False
    ) -> str:
        """Run a program to its end and return its output; raise StackStartError if it fails.

        The log keeps the output, unless it is ``secret`` and the program succeeds.
        """
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=self._environment(env),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        text = output.decode(errors="replace")
        if process.returncode or not secret:
            with self._log_file(name).open("a") as log:
                log.write(text)
        if process.returncode:
            raise StackStartError(
                f"{name} failed (exit {process.returncode}):\n{self.log_tail(name)}"
            )
        return text

    async def wait_for_failure(self) -> None:
        """Wait until a part cannot be kept alive; raise StackStartError."""
        done, _ = await asyncio.wait(self._watchers, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def stop_parts(self) -> None:
        """Stop every part, the last started first, even if one fails to stop."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        async with AsyncExitStack() as ends:
            for name in list(self._running):
                ends.push_async_callback(self._stop_part, name)

    def log_tail(self, name: str) -> str:
        """Return the last lines of a part's log."""
        path = self._log_file(name)
        text = path.read_text(errors="replace") if path.exists() else ""
        tail = "".join(f"    {line}\n" for line in text.splitlines()[-TAIL_LINES:])
        return f"{tail}    (full log: {path})"

    async def _keep_running(self, part: StackPart) -> None:
        """Restart the part whenever it dies, unless it dies too often."""
        clock = asyncio.get_running_loop().time
        deaths: deque[float] = deque(maxlen=self._max_restarts + 1)
        while True:
            code = await self._running[part.name][1].wait()
            self._ready_file(part.name).unlink(missing_ok=True)
            recent = bool(deaths) and clock() - deaths[-1] < RESTART_WINDOW_SECONDS
            deaths.append(clock())
            message = f"{part.name} died (exit {code}). Its last lines:\n{self.log_tail(part.name)}"
            too_often = (
                len(deaths) == deaths.maxlen and clock() - deaths[0] < RESTART_WINDOW_SECONDS
            )
            if too_often:
                raise StackStartError(
                    f"{message}\nIt died {len(deaths)} times in a minute; stopping the stack."
                )
            self._notify(f"{message}\nrestarting {part.name}")
            await asyncio.sleep(RESTART_PAUSE_SECONDS if recent else 0)
            await self._restart(part)

    async def _restart(self, part: StackPart) -> None:
        """Restart the part; if it does not become ready, kill it, so that it counts as dead."""
        await self._wait_while_held(part.name)
        try:
            await self._spawn(part)
        except StackStartError as failure:
            self._notify(str(failure))
            with suppress(ProcessLookupError):
                self._running[part.name][1].kill()

    async def _wait_while_held(self, name: str) -> None:
        """Wait while `rekindle.local.faults` keeps the part stopped."""
        hold_file = self._state / HOLD_FOLDER / name
        if hold_file.exists():
            await asyncio.sleep(max(float(hold_file.read_text()) - time.time(), 0))
            hold_file.unlink(missing_ok=True)

    async def _spawn(self, part: StackPart) -> None:
        pid_file = self._state / "pids" / part.name
        pid_file.touch()
        group = None
        if part.user is not None:
            pid_file.chmod(0o666)
            group = pwd.getpwnam(part.user).pw_gid
        with self._log_file(part.name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _WRITE_PID_THEN_EXEC, str(pid_file), *part.argv),
                env=self._environment(part.env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=part.user,
                group=group,
                extra_groups=None if group is None else (),
                start_new_session=True,
            )
        self._running[part.name] = (part, process)
        await self._wait_until_ready(part, process)
        self._ready_file(part.name).write_text(str(process.pid))

    async def _wait_until_ready(self, part: StackPart, process: asyncio.subprocess.Process) -> None:
        """Poll until the part is ready; raise StackStartError if it ends or takes too long."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + part.ready_within
        ended = asyncio.create_task(process.wait())
        while not await part.ready():
            if ended.done():
                raise StackStartError(f"{part.name} exited at once:\n{self.log_tail(part.name)}")
            if clock() > deadline:
                message = f"{part.name} was not ready after {part.ready_within:.0f} s"
                raise StackStartError(f"{message}:\n{self.log_tail(part.name)}")
            await asyncio.wait({ended}, timeout=0.05)
        ended.cancel()

    async def _stop_part(self, name: str) -> None:
        part, process = self._running.pop(name)
        if process.returncode is None:
            process.send_signal(part.stop_signal)
            try:
                async with asyncio.timeout(GRACE_SECONDS):
                    await process.wait()
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        (self._state / "pids" / name).unlink(missing_ok=True)
        self._ready_file(name).unlink(missing_ok=True)

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, **env, STACK_VARIABLE: str(self._state.path)}

    def _ready_file(self, name: str) -> Path:
        return self._state / "ready" / name

    def _log_file(self, name: str) -> Path:
        return self._state / "logs" / f"{name}.log"
