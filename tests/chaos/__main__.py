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
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from service.serving import event_loop
from tests.chaos import lives, places, points
from tests.chaos.lives import Storm, print_line
from tests.chaos.points import Strike
from tests.scenario import worlds
from tests.scenario.plays.job_plays import PLAYS
from tests.scenario.seams import Harm, Point


def main() -> int:
    """Run, print, and say by the exit status whether every promise was kept."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the servers that were started
    summary = _run(options)
    if options.json:
        options.json.write_text(json.dumps(summary) + "\n")
    for line in summary["broken"]:
        print_line(f"BROKEN: {line}")
    broken = f"{len(summary['broken'])} broken promises"
    print_line(f"{summary['lives']} lives, {broken}, {summary['seconds']:.0f} s")
    return 1 if summary["broken"] else 0


def _run(options: argparse.Namespace) -> dict[str, Any]:
    started = time.monotonic()
    broken: list[str] = []
    points_by_play = _points_of_plays(options.plays)
    missed = _tell(points_by_play)
    if set(options.plays) == set(PLAYS):
        broken += [f"no play comes to: {place}" for place in missed]
        if options.record:
            places.record(
                {play: {p.what for _, p in all_} for play, all_ in points_by_play.items()}
            )
    planned: list[Strike | Storm] = []
    for harm in options.harm:
        strikes = [s for p, all_ in points_by_play.items() for s in points.strikes(p, all_, harm)]
        planned += strikes[:: options.every]
    planned += [Storm(options.seed + n) for n in range(options.storms)]
    unbroken = lives.unbroken_lives(options.keep)
    todo = [life for life in planned if str(life) not in unbroken]
    print_line(
        f"{len(todo)} of {len(planned)} lives are to be lived, in {options.processes} processes"
    )
    outcome = lives.live(todo, options.keep, options.processes)
    outcome.share.lives.update(
        s.kind for s in planned if isinstance(s, Strike) and str(s) in unbroken
    )
    for line in outcome.share.describe_misses():
        print_line(line)
    return {
        "points": {play: len(all_) for play, all_ in points_by_play.items()},
        "lives": outcome.lives.total(),
        "by_harm": dict(outcome.lives),
        "missed": outcome.share.missed,
        "broken": broken + outcome.broken + outcome.share.too_many(),
        "seconds": round(time.monotonic() - started, 1),
    }


def _points_of_plays(plays: list[str]) -> dict[str, list[tuple[int, Point]]]:
    with worlds.database() as url, asyncio.Runner(loop_factory=event_loop()) as runner:
        return runner.run(points.enumerated(url, plays))


def _tell(points_by_play: dict[str, list[tuple[int, Point]]]) -> list[str]:
    """Print what was found; return the places that no life comes to."""
    for play, all_ in points_by_play.items():
        print_line(f"{play:20} {len(all_):4} points of its own")
    met = {point.what for all_ in points_by_play.values() for _, point in all_}
    print_line(f"{sum(map(len, points_by_play.values()))} points at {len(met)} places in the code")
    missed = sorted(places.all_places() - met)
    for place in missed:
        print_line(f"  no life comes to: {place}")
    return missed


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
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="default: one a core",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.harm = [names[name] for name in options.harm]
    return options


if __name__ == "__main__":
    sys.exit(main())
