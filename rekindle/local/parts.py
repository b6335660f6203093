"""Programs of the local stack: started with a time limit, watched, started again, ended in order.

Each runs in a session of its own, so that Ctrl-C reaches only the stack, which ends
the parts one by one. A part writes its process id before it becomes the program: what
a killed stack left running is found by the next one and ended. STATE/ready/NAME holds that
id once the part is ready.
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

from rekindle.local.state_folder import CannotStart, State

MARK = "REKINDLE_STACK"  # in every process of a stack: the state folder that it serves
HELD = "held"  # folder: a part named in it is not started before the time in the file
SHOWN_LINES = 15
MOST_RESTARTS = 5  # of one part, within
RESTART_WINDOW_SECONDS = 60.0
RESTART_PAUSE_SECONDS = 0.5  # before the second in a row and each after it
GRACE_SECONDS = 10.0
_NOTE_PID_THEN_RUN = 'echo $$ >"$0" && exec "$@"'


@dataclass(frozen=True, kw_only=True)
class Part:
    """One long-running program of the stack."""

    name: str
    argv: Sequence[str]
    ready: Callable[[], Awaitable[bool]]
    env: Mapping[str, str] = field(default_factory=dict)
    ready_within: float = 60.0
    stop_signal: signal.Signals = signal.SIGTERM
    user: str | None = None


class Crew:
    """The running parts of one stack. ``most_restarts``: more within a minute are given up on."""

    def __init__(
        self, state: State, say: Callable[[str], None], most_restarts: int = MOST_RESTARTS
    ) -> None:
        self._state = state
        self._say = say
        self._most_restarts = most_restarts
        self._running: dict[str, tuple[Part, asyncio.subprocess.Process]] = {}
        self._watchers: list[asyncio.Task[None]] = []
        (state / "logs").mkdir(mode=0o700, exist_ok=True)  # one of them holds a new API key
        for folder in ("pids", "ready", HELD):
            (state / folder).mkdir(exist_ok=True)

    async def start(self, part: Part) -> None:
        """Start a part and wait until it is ready, or raise CannotStart with its last lines."""
        await self._spawn(part)
        self._watchers.append(asyncio.create_task(self._watch(part), name=part.name))

    async def run(
        self, name: str, argv: Sequence[str], env: Mapping[str, str], *, secret: bool = False
    ) -> str:
        """Run a program to its end and return its output; raise CannotStart when it fails.

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
            with self._log(name).open("a") as log:
                log.write(text)
        if process.returncode:
            raise CannotStart(f"{name} failed (exit {process.returncode}):\n{self.tail(name)}")
        return text

    async def watch(self) -> None:
        """Wait until a part cannot be kept alive: raises CannotStart."""
        done, _ = await asyncio.wait(self._watchers, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """End every part, the last started first; one that resists does not spare the others."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        async with AsyncExitStack() as ends:
            for name in list(self._running):
                ends.push_async_callback(self._end, name)

    def tail(self, name: str) -> str:
        """The last lines that a part wrote."""
        path = self._log(name)
        text = path.read_text(errors="replace") if path.exists() else ""
        shown = "".join(f"    {line}\n" for line in text.splitlines()[-SHOWN_LINES:])
        return f"{shown}    (all of it: {path})"

    async def _watch(self, part: Part) -> None:
        """Start the part again whenever it dies, unless it dies too often."""
        clock = asyncio.get_running_loop().time
        deaths: deque[float] = deque(maxlen=self._most_restarts + 1)
        while True:
            code = await self._running[part.name][1].wait()
            self._ready_note(part.name).unlink(missing_ok=True)
            recent = bool(deaths) and clock() - deaths[-1] < RESTART_WINDOW_SECONDS
            deaths.append(clock())
            story = f"{part.name} died (exit {code}). Its last lines:\n{self.tail(part.name)}"
            often = len(deaths) == deaths.maxlen and clock() - deaths[0] < RESTART_WINDOW_SECONDS
            if often:
                raise CannotStart(f"{story}\nIt died {len(deaths)} times in a minute: given up.")
            self._say(f"{story}\nstarting {part.name} again")
            await asyncio.sleep(RESTART_PAUSE_SECONDS if recent else 0)
            await self._start_again(part)

    async def _start_again(self, part: Part) -> None:
        """Start it; that it does not come up, its next death tells."""
        await self._held(part.name)
        try:
            await self._spawn(part)
        except CannotStart as failure:
            self._say(str(failure))
            with suppress(ProcessLookupError):
                self._running[part.name][1].kill()

    async def _held(self, name: str) -> None:
        """Wait as long as somebody wants the part to be away: `rekindle.local.faults`."""
        note = self._state / HELD / name
        if note.exists():
            await asyncio.sleep(max(float(note.read_text()) - time.time(), 0))
            note.unlink(missing_ok=True)

    async def _spawn(self, part: Part) -> None:
        pid_file = self._state / "pids" / part.name
        pid_file.touch()
        group = None
        if part.user is not None:
            pid_file.chmod(0o666)
            group = pwd.getpwnam(part.user).pw_gid
        with self._log(part.name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _NOTE_PID_THEN_RUN, str(pid_file), *part.argv),
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
        await self._ready(part, process)
        self._ready_note(part.name).write_text(str(process.pid))

    async def _ready(self, part: Part, process: asyncio.subprocess.Process) -> None:
        """Look again and again until the part is ready, has ended or is late."""
        clock = asyncio.get_running_loop().time
        latest = clock() + part.ready_within
        ended = asyncio.create_task(process.wait())
        while not await part.ready():
            if ended.done():
                raise CannotStart(f"{part.name} ended at once:\n{self.tail(part.name)}")
            if clock() > latest:
                late = f"{part.name} was not ready after {part.ready_within:.0f} s"
                raise CannotStart(f"{late}:\n{self.tail(part.name)}")
            await asyncio.wait({ended}, timeout=0.05)
        ended.cancel()

    async def _end(self, name: str) -> None:
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
        self._ready_note(name).unlink(missing_ok=True)

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, **env, MARK: str(self._state.path)}

    def _ready_note(self, name: str) -> Path:
        return self._state / "ready" / name

    def _log(self, name: str) -> Path:
        return self._state / "logs" / f"{name}.log"
