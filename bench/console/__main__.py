"""Benchmark of the web console in Chromium.

Run it with `python -m bench.console [--jobs N] [--pages N] [--json [FILE]]`. It starts PostgreSQL,
an api process and a reconciler with a fake cloud and simulated nodes. It measures the size of the
scripts, the paint time with many jobs, the response to input, the delay from a heartbeat to its
step on the screen, the CPU that open pages cost the api process, and a metrics series of a million
steps.
"""

import sys

import httpx

from bench import report
from bench.console import measures
from bench.scale.parts.line import Broken


def main() -> int:
    """Run the benchmark, print its measures and return the exit status."""
    parser = report.option_parser("console", __doc__)
    add = parser.add_argument
    add("--jobs", type=int, default=5000, help="Number of jobs in the list (5000).")
    add("--pages", type=int, default=200, help="Number of pages that are open at a time (200).")
    add("--seconds", type=float, default=30.0, help="Seconds of each measurement (30).")
    add("--steps", type=int, default=1_000_000, help="Steps of the long series (1000000).")
    options = parser.parse_args()
    order = measures.ConsoleOptions(
        jobs=options.jobs, pages=options.pages, seconds=options.seconds, steps=options.steps
    )
    results = report.run_to_exit(measures.all_of(order), Broken, httpx.HTTPError)
    report.publish("console", results, options.json, arguments=vars(order))
    return 0


if __name__ == "__main__":
    sys.exit(main())
