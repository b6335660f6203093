"""`python -m tests.chaos [--harm NAME ...] [--every N] [--plays NAME ...] [--storms N] [--record]`.

Finds every point of every play, strikes a replica at each of them in every way, and looks at the
promises. Exit 1: one was broken, or no play comes to a place of the code.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos import places, points, storms
from tests.chaos.plays import PLAYS
from tests.chaos.points import Strike
from tests.chaos.seams import Harm, Point


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
    async with points.an_engine(url) as engine:
        found = await points.enumerated(engine, url, options.plays)
        missed = _tell(found)
        if set(options.plays) == set(PLAYS):
            broken += [f"no play comes to: {place}" for place in missed]
            if options.record:
                places.record({play: {p.what for _, p in all_} for play, all_ in found.items()})
        for harm in options.harm:
            strikes = [Strike(p, n, at, harm) for p, all_ in found.items() for n, at in all_]
            for strike in strikes[:: options.every]:
                lives[harm] += 1
                if lives[harm] % 25 == 0:
                    _say(f"{harm}: {lives[harm]} of {len(strikes[:: options.every])} lives")
                mends = await points.lived(engine, url, strike)
                broken += [f"{strike}: {line}" for line in mends]
                for line in mends:
                    _say(f"BROKEN: {strike}: {line}")
            _say(f"{harm}: {lives[harm]} lives, {len(broken)} broken so far")
        for seed in range(options.seed, options.seed + options.storms):
            lives["storms"] += 1
            broken += [f"storm {seed}: {b}" for b in await storms.weathered(engine, url, seed)]
    return {
        "points": {play: len(all_) for play, all_ in found.items()},
        "lives": sum(lives.values()),
        "by_harm": dict(lives),
        "broken": broken,
        "seconds": round(time.monotonic() - began, 1),
    }


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
    options = parser.parse_args()
    options.harm = [names[name] for name in options.harm]
    return options


if __name__ == "__main__":
    sys.exit(main())
