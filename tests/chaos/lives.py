"""Many lives, shared out among processes that have a PostgreSQL each."""

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

_TIMEOUT = 300.0  # s; a life takes 1 to 4 on a core of its own
_TELL_EVERY = 100  # lives


@dataclass(frozen=True)
class Storm:
    """A random life."""

    seed: int

    def __str__(self) -> str:
        return f"storm {self.seed}"


@dataclass
class Outcome:
    """What came of many lives."""

    lives: Counter[str] = field(default_factory=Counter)  # by harm
    broken: list[str] = field(default_factory=list)
    share: Share = field(default_factory=Share)

    def add(self, other: "Outcome") -> None:
        """Add what another one has lived."""
        self.lives.update(other.lives)
        self.broken += other.broken
        self.share.add(other.share)


def live(todo: Sequence[Strike | Storm], keep: Path | None, processes: int) -> Outcome:
    """Live all of them. The servers belong to this process, so an interrupt leaves none behind."""
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
    """Return the lives that broke nothing when they were lived last."""
    lines = keep.read_text().splitlines() if keep and keep.exists() else []
    broken_by_life = {life["life"]: life["broken"] for life in map(json.loads, lines)}
    return {name for name, broken in broken_by_life.items() if not broken}


def note(name: str, broken: list[str] | None, keep: Path | None) -> list[str]:
    """Note a life in ``keep``; return a line for each broken promise. A miss is not noted."""
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
        return runner.run(_lived(todo, url, keep, number))


async def _lived(
    todo: Sequence[Strike | Storm], url: str, keep: Path | None, number: int
) -> Outcome:
    outcome = Outcome()
    async with worlds.an_engine(url) as engine:
        for n, life in enumerate(todo, 1):
            if isinstance(life, Strike):
                broken = await _outcome(points.lived(engine, url, life))
                outcome.share.count(life, broken)
                outcome.lives[life.harm] += 1
            else:
                broken = await _outcome(storms.live_through(engine, url, life.seed))
                outcome.lives["storms"] += 1
            outcome.broken += note(str(life), broken, keep)
            if n % _TELL_EVERY == 0:
                print_line(
                    f"{number}: {n} of {len(todo)} lives, {len(outcome.broken)} broken; {life}"
                )
    return outcome


async def _outcome(life: Coroutine[Any, Any, list[str] | None]) -> list[str] | None:
    """Return what a life broke; one that fails or hangs breaks that promise alone."""
    task = asyncio.create_task(asyncio.wait_for(life, _TIMEOUT))
    await asyncio.wait({task})
    fault = task.exception()
    return task.result() if fault is None else [f"{type(fault).__name__}: {fault}"]
