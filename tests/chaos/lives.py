"""Run many lives in several processes, each with its own PostgreSQL."""

import asyncio
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.serving import event_loop
from tests.chaos import points, storms
from tests.chaos.points import Share, Strike
from tests.scenario import worlds

_TIMEOUT = 300.0  # s; a life takes 1 to 4 s on one core
_PRINT_EVERY = 100  # lives


@dataclass(frozen=True)
class Storm:
    """A random life."""

    seed: int

    def __str__(self) -> str:
        return f"storm {self.seed}"


@dataclass
class Outcome:
    """The results of many lives."""

    lives: Counter[str] = field(default_factory=Counter)  # by harm
    broken: list[str] = field(default_factory=list)
    share: Share = field(default_factory=Share)

    def add(self, other: "Outcome") -> None:
        """Add the results of another process."""
        self.lives.update(other.lives)
        self.broken += other.broken
        self.share.add(other.share)


def run(todo: Sequence[Strike | Storm], keep: Path | None, processes: int) -> Outcome:
    """Run all of them. This process owns the servers, so an interrupt leaves none behind."""
    outcome = Outcome()
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as servers:
        urls = [servers.enter_context(worlds.database()) for _ in range(processes)]
        with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
            shares = [(todo[n::processes], url, keep, n + 1) for n, url in enumerate(urls)]
            parts = [pool.submit(_part, *share) for share in shares]
            try:
                for part in parts:
                    outcome.add(part.result())
            except BaseException:
                for process in multiprocessing.active_children():
                    process.kill()
                raise
    return outcome


def unbroken_lives(keep: Path | None) -> set[str]:
    """Return the lives whose last run broke no promise."""
    lines = keep.read_text().splitlines() if keep and keep.exists() else []
    broken_by_life = {life["life"]: life["broken"] for life in map(json.loads, lines)}
    return {name for name, broken in broken_by_life.items() if not broken}


def record(name: str, broken: list[str] | None, keep: Path | None) -> list[str]:
    """Append a life to ``keep``; return a line for each broken promise. Omit a miss (None)."""
    if broken is None:
        return []
    if keep:
        with keep.open("a") as lines:
            lines.write(json.dumps({"life": name, "broken": broken}) + "\n")
    for line in broken:
        print_line(f"BROKEN: {name}: {line}")
    return [f"{name}: {line}" for line in broken]


def print_line(line: str) -> None:
    """Write a line without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _part(todo: Sequence[Strike | Storm], url: str, keep: Path | None, number: int) -> Outcome:
    with asyncio.Runner(loop_factory=event_loop()) as runner:
        return runner.run(_run_lives(todo, url, keep, number))


async def _run_lives(
    todo: Sequence[Strike | Storm], url: str, keep: Path | None, number: int
) -> Outcome:
    outcome = Outcome()
    async with worlds.an_engine(url) as engine:
        for n, life in enumerate(todo, 1):
            if isinstance(life, Strike):
                broken = await _outcome(points.run_struck(engine, url, life))
                outcome.share.count(life, broken)
                outcome.lives[life.harm] += 1
            else:
                broken = await _outcome(storms.run(engine, url, life.seed))
                outcome.lives["storms"] += 1
            outcome.broken += record(str(life), broken, keep)
            if n % _PRINT_EVERY == 0:
                print_line(
                    f"{number}: {n} of {len(todo)} lives, {len(outcome.broken)} broken; {life}"
                )
    return outcome


async def _outcome(life: Coroutine[Any, Any, list[str] | None]) -> list[str] | None:
    """Return the broken promises of a life; a failure or timeout counts as one."""
    task = asyncio.create_task(asyncio.wait_for(life, _TIMEOUT))
    await asyncio.wait({task})
    fault = task.exception()
    return task.result() if fault is None else [f"{type(fault).__name__}: {fault}"]
