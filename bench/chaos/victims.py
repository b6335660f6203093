"""The api and reconciler processes: killed without a word, and started again on the same port."""

import asyncio
import random
import subprocess
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from bench.scale.stack import Stack

DOWN_SECONDS = (0.0, 3.0)  # between a kill and the next start


@dataclass
class Victims:
    """Kills one at a time, at random; ``kills``: how many of each kind."""

    stack: Stack
    dice: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    died: Counter[str] = field(default_factory=Counter)  # of themselves, and started again
    how: dict[tuple[str, int], tuple[list[str], dict[str, str]]] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    async def kill_every(self, seconds: float) -> None:
        """Until cancelled."""
        for kind in ("api", "reconciler"):
            for index, process in enumerate(self.stack.processes[kind]):
                self.how[kind, index] = (process.cmdline(), process.environ())
        while True:
            await asyncio.sleep(seconds * self.dice.uniform(0.5, 1.5))
            kind = self.dice.choice(["api", "reconciler", "reconciler"])
            await self._kill(kind)

    async def _kill(self, kind: str) -> None:
        processes = self.stack.processes[kind]
        index = self.dice.randrange(len(processes))
        victim = processes[index]
        if victim.status() == psutil.STATUS_ZOMBIE:  # a supervisor of processes starts it again
            self.died[kind] += 1
        else:
            self.how[kind, index] = (victim.cmdline(), victim.environ())
            victim.kill()
            self.kills[kind] += 1
        try:
            await asyncio.to_thread(victim.wait, 10)
            await asyncio.sleep(self.dice.uniform(*DOWN_SECONDS))
        finally:
            self._start_again(kind, index, *self.how[kind, index])

    def _start_again(self, kind: str, index: int, command: list[str], env: dict[str, str]) -> None:
        with (self.stack.folder / "logs" / f"again-{kind}-{index}.log").open("ab") as log:
            fresh = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=log)
        self.started.append(fresh)
        self.stack.processes[kind][index] = psutil.Process(fresh.pid)

    def end(self) -> None:
        """End what was started here; the rest is the stack's."""
        for process in self.started:
            process.terminate()
        for process in self.started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()
            process.wait()
