"""Benchmark of the web console in Chromium.

Run it with `python -m bench.console [--jobs N] [--pages N] [--json [FILE]]`. It starts PostgreSQL,
an api process and a reconciler with a fake cloud and simulated nodes. It measures the size of the
scripts, the paint time with many jobs, the response to input, the delay from a heartbeat to its
step on the screen, the CPU that open pages cost the api process, and a metrics series of a million
steps.
"""

import argparse
import asyncio
import sys
from pathlib import Path

import httpx

from bench import report
from bench.console import measures
from bench.scale.parts.line import Broken
from bench.scale.stack import CannotMeasure

STDOUT = Path("-")
CANNOT_MEASURE, INTERRUPTED = 2, 130


def main() -> int:
    """Run the benchmark, print its measures and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000, help="in the list")
    parser.add_argument("--pages", type=int, default=200, help="open at a time")
    parser.add_argument("--seconds", type=float, default=30.0, help="of watching")
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the long series")
    parser.add_argument("--json", type=Path, nargs="?", const=STDOUT, metavar="FILE")
    options = parser.parse_args()
    order = measures.Order(
        jobs=options.jobs, pages=options.pages, seconds=options.seconds, steps=options.steps
    )
    try:
        found = asyncio.run(measures.all_of(order))
    except KeyboardInterrupt:
        return INTERRUPTED
    except (CannotMeasure, Broken, httpx.HTTPError) as error:
        print(f"cannot go on: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return CANNOT_MEASURE
    report.show(found)
    if options.json:
        whole = report.Report(bench="console", measures=found, more={"arguments": vars(order)})
        whole.write(None if options.json == STDOUT else options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
