"""`python -m tests.chaos [--harm NAME ...] [--every N] [--plays NAME ...] [--storms N] [--record]`.

Runs each play once to list its points (effects and commits). Then runs it again for each point and
each kind of fault, with that fault injected there, and checks every promise. Exit 1: a promise was
broken, or no play reaches some place in the code that writes.

`--keep FILE` appends one JSON line per life with the promises it broke, and skips lives that the
file records as unbroken. So an interrupted run continues, and a smaller `--every` adds the rest.
The end reports strikes that missed their point; the run fails if most of one kind did.
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
    """Run and print; return 1 if a promise was broken."""
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
    reached = _print_points(points_by_play)
    if set(options.plays) == set(PLAYS):
        broken += [f"no play reaches: {p}" for p in sorted(places.all_places() - reached)]
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
    print_line(f"{len(todo)} of {len(planned)} lives to run, in {options.processes} processes")
    outcome = lives.run(todo, options.keep, options.processes)
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
        "broken": broken + outcome.broken + outcome.share.failures(),
        "seconds": round(time.monotonic() - started, 1),
    }


def _points_of_plays(plays: list[str]) -> dict[str, list[tuple[int, Point]]]:
    with worlds.database() as url, asyncio.Runner(loop_factory=event_loop()) as runner:
        return runner.run(points.enumerated(url, plays))


def _print_points(points_by_play: dict[str, list[tuple[int, Point]]]) -> set[str]:
    """Print the number of points; return the places that the plays reach."""
    for play, all_ in points_by_play.items():
        print_line(f"{play:20} {len(all_):4} own points")
    reached = {point.what for all_ in points_by_play.values() for _, point in all_}
    print_line(
        f"{sum(map(len, points_by_play.values()))} points at {len(reached)} places in the code"
    )
    return reached


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    names = {harm.name.lower(): harm for harm in Harm}
    parser.add_argument(
        "--harm", nargs="*", default=list(names), choices=list(names), help="faults; default: all"
    )
    parser.add_argument("--plays", nargs="*", default=list(PLAYS), choices=list(PLAYS))
    parser.add_argument("--every", type=int, default=1, metavar="N", help="strike every Nth point")
    parser.add_argument(
        "--storms", type=int, default=20, metavar="N", help="random lives at the end; default: 20"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the first storm")
    parser.add_argument("--record", action="store_true", help="update reached.txt; needs all plays")
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="default: one per core",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="append lives; skip unbroken ones"
    )
    options = parser.parse_args()
    options.harm = [names[name] for name in options.harm]
    return options


if __name__ == "__main__":
    sys.exit(main())
