"""`python -m tests.chaos [--harm NAME ...] [--every N] [--plays NAME ...] [--storms N] [--record]`.

Finds every point of every play, strikes a replica at each of them in every way, and looks at the
promises. Exit 1: one was broken, or no play comes to a place of the code.

`--keep FILE` notes each life, a line of JSON with what it broke, and does not live again those
that were struck and broke nothing: a run that was stopped goes on, one with a smaller `--every`
takes the rest. Strikes that missed are told at the end; it fails if most of one kind did.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.chaos import places, points, storms
from tests.chaos.plays import PLAYS
from tests.chaos.seams import Harm, Point

_PATIENCE = 300.0  # s; a life takes 1 to 4 on a core of its own


def main() -> int:
    """Run, print, and say by the exit status whether every promise was kept."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the server that was started
    with points.database() as url:
        told = asyncio.run(_run(url, options))
    if options.json:
        options.json.write_text(json.dumps(told) + "\n")
    for line in told["broken"]:
        _say(f"BROKEN: {line}")
    _say(f"{told['lives']} lives, {len(told['broken'])} broken promises, {told['seconds']:.0f} s")
    return 1 if told["broken"] else 0


async def _run(url: str, options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    broken: list[str] = []
    lives: Counter[str] = Counter()
    held, share = _held(options.keep), points.Share()
    async with points.an_engine(url) as engine:
        found = await points.enumerated(engine, url, options.plays)
        missed = _tell(found)
        if set(options.plays) == set(PLAYS):
            broken += [f"no play comes to: {place}" for place in missed]
            if options.record:
                places.record({play: {p.what for _, p in all_} for play, all_ in found.items()})
        for harm in options.harm:
            strikes = [s for p, all_ in found.items() for s in points.strikes(p, all_, harm)]
            chosen = [s for s in strikes[:: options.every] if str(s) not in held]
            share.lives.update(s.kind for s in strikes if str(s) in held)
            for strike in chosen:
                lives[harm] += 1
                if lives[harm] % 25 == 0:
                    _say(f"{harm}: {lives[harm]} of {len(chosen)} lives")
                came_of_it = await _outcome(points.lived(engine, url, strike))
                share.count(strike, came_of_it)
                broken += _told(str(strike), came_of_it, options.keep)
            _say(f"{harm}: {lives[harm]} lives, {len(broken)} broken so far")
        for seed in range(options.seed, options.seed + options.storms):
            if (name := f"storm {seed}") not in held:
                lives["storms"] += 1
                came_of_it = await _outcome(storms.weathered(engine, url, seed))
                broken += _told(name, came_of_it, options.keep)
    for line in share.told():
        _say(line)
    return {
        "points": {play: len(all_) for play, all_ in found.items()},
        "lives": sum(lives.values()),
        "by_harm": dict(lives),
        "missed": share.missed,
        "broken": broken + share.too_many(),
        "seconds": round(time.monotonic() - began, 1),
    }


async def _outcome(life: Coroutine[Any, Any, list[str] | None]) -> list[str] | None:
    """What it broke; one that fails or hangs is told like the others, and they are lived."""
    task = asyncio.create_task(asyncio.wait_for(life, _PATIENCE))
    await asyncio.wait({task})
    fault = task.exception()
    return task.result() if fault is None else [f"{type(fault).__name__}: {fault}"]


def _held(keep: Path | None) -> set[str]:
    """Lives that broke nothing when they were lived last."""
    lines = keep.read_text().splitlines() if keep and keep.exists() else []
    told = {life["life"]: life["broken"] for life in map(json.loads, lines)}
    return {name for name, broken in told.items() if not broken}


def _told(name: str, broken: list[str] | None, keep: Path | None) -> list[str]:
    if broken is None:  # it missed, and is lived again
        return []
    if keep:
        with keep.open("a") as lines:
            lines.write(json.dumps({"life": name, "broken": broken}) + "\n")
    for line in broken:
        _say(f"BROKEN: {name}: {line}")
    return [f"{name}: {line}" for line in broken]


def _tell(found: dict[str, list[tuple[int, Point]]]) -> list[str]:
    """Print what was found; return the places that no life comes to."""
    for play, all_ in found.items():
        _say(f"{play:20} {len(all_):4} points of its own")
    met = {point.what for all_ in found.values() for _, point in all_}
    _say(f"{sum(map(len, found.values()))} points at {len(met)} places in the code")
    missed = sorted(places.all_places() - met)
    for place in missed:
        _say(f"  no life comes to: {place}")
    return missed


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    names = {harm.name.lower(): harm for harm in Harm}
    parser.add_argument(
        "--harm", nargs="*", default=list(names), choices=list(names), help="default: all"
    )
    parser.add_argument("--plays", nargs="*", default=list(PLAYS), choices=list(PLAYS))
    parser.add_argument("--every", type=int, default=1, metavar="N", help="strike every Nth point")
    parser.add_argument("--storms", type=int, default=20, metavar="N", help="random lives after it")
    parser.add_argument("--seed", type=int, default=1, help="of the first storm")
    parser.add_argument("--record", action="store_true", help="write met.txt, of all plays")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.harm = [names[name] for name in options.harm]
    return options


if __name__ == "__main__":
    sys.exit(main())
