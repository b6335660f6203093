"""Random kills of api and reconciler processes, and their restarts on the same port."""

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from bench.scale.stack import ScaleStack

DOWN_SECONDS = (0.0, 3.0)  # seconds between a kill and the restart
KINDS = ("api", "reconciler")
_END_SECONDS = 15.0


@dataclass
class Victims:
    """Kills one process at a time, at random; ``kills`` counts them by kind."""

    stack: ScaleStack
    rng: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    crashes: Counter[str] = field(default_factory=Counter)  # crashes, by kind
    cpu: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # s, of the killed
    commands: dict[tuple[str, int], tuple[list[str], dict[str, str]]] = field(default_factory=dict)
    started: list[psutil.Process] = field(default_factory=list)
    _nursery: subprocess.Popen[str] | None = None

    async def kill_every(self, seconds: float) -> None:
        """Kill a random process every ``seconds`` seconds on average, until cancelled."""
        for kind in KINDS:
            for index, process in enumerate(self.stack.processes[kind]):
                self.commands[kind, index] = (process.cmdline()[3:], process.environ())
        while True:
            await asyncio.sleep(seconds * self.rng.uniform(0.5, 1.5))
            await self._kill(self.rng.choice(["api", "reconciler", "reconciler"]))

    async def _kill(self, kind: str) -> None:
        processes = self.stack.processes[kind]
        index = self.rng.randrange(len(processes))
        victim = processes[index]
        if victim.is_running() and victim.status() != psutil.STATUS_ZOMBIE:
            used = victim.cpu_times()
            self.cpu[kind] += used.user + used.system
            victim.kill()
            self.kills[kind] += 1
        else:  # it crashed: restart it, as a process supervisor would
            self.crashes[kind] += 1
        try:
            await asyncio.to_thread(victim.wait, 10)
            await asyncio.sleep(self.rng.uniform(*DOWN_SECONDS))
        finally:
            self._restart(kind, index)

    def _restart(self, kind: str, index: int) -> None:
        arguments, env = self.commands[kind, index]
        log = self.stack.folder / "logs" / f"again-{kind}-{index}.log"
        order = {"arguments": arguments, "env": env, "log": str(log)}
        pipe = self._nursery or self._start_nursery(env)
        assert pipe.stdin is not None
        assert pipe.stdout is not None
        pipe.stdin.write(f"{json.dumps(order)}\n")
        pipe.stdin.flush()
        process = psutil.Process(int(pipe.stdout.readline()))
        self.started.append(process)
        self.stack.processes[kind][index] = process

    def _start_nursery(self, env: dict[str, str]) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "bench.scale.parts.nursery"]
        pipe = subprocess.PIPE
        self._nursery = subprocess.Popen(command, env=env, text=True, stdin=pipe, stdout=pipe)
        return self._nursery

    def end(self) -> None:
        """Stop the processes that were restarted here; the stack stops the others."""
        running = [process for process in self.started if process.is_running()]
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(running, _END_SECONDS)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self._nursery is not None and self._nursery.stdin is not None:
            self._nursery.stdin.close()
            self._nursery.wait(_END_SECONDS)
