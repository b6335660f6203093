"""Chaos benchmark: kills api and reconciler processes at random while jobs run.

Run it with `python -m bench.chaos --jobs 500 [--at-once N] [--seed S] [--every SECONDS]
[--latency N]`. Two api and three reconciler processes share one PostgreSQL. They are killed at
random while jobs are submitted, evicted, cancelled and finished. Afterwards it counts leaked scale
sets, duplicated attempts and lost jobs. Cloud, Blob and nodes are those of bench.scale.

With --latency N nothing is killed. Instead N jobs lose a machine in each of three ways, and it
measures the seconds until the decision and until the next create call. Exit 1: a bar was missed.
Exit 2: it could not measure.
"""

import argparse
import asyncio
import random
import signal
import sys
import time
from collections.abc import Mapping

from bench import report
from bench.chaos import latency, run
from bench.chaos.run import Chaos, Counted
from bench.chaos.victims import Victims
from bench.report import CannotMeasure, Measure, print_progress
from bench.scale.stack import Shape, stack

SHAPE = Shape(apis=2, reconcilers=3, beat=5.0, commits=20.0, arm_ms=20.0, blob_ms=2.0)


def main() -> int:
    """Run the benchmark and return 0 when every bar is met, 1 when not, 2 when it failed."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that SIGTERM stops the children
    start = time.monotonic()
    counted, victims = Counted(), [0, 0]
    cpu: dict[str, float] = {}
    measures: list[Measure] = []
    try:
        if options.latency:
            measures = asyncio.run(
                latency.measured(options.latency, options.silence, print_progress)
            )
        else:
            asyncio.run(_run(options, counted, victims, cpu))
            measures = [*counts(options.jobs, counted, victims), *cpu_measures(cpu)]
    except CannotMeasure as error:
        print_progress(f"cannot measure: {error}")
        return 2
    evidence = [*counted.unfinished, *counted.doubled, *counted.forgotten, *counted.leaked]
    for line in [*evidence, *counted.disordered]:
        print_progress(f"BROKEN: {line}")
    report.publish(
        "chaos",
        measures,
        options.json,
        arguments={"jobs": options.jobs, "seed": options.seed, "every": options.every},
        seconds=round(time.monotonic() - start, 1),
        outcomes=counted.outcomes,
        broken=sorted(evidence),
    )
    return 0 if all(m.passes for m in measures) else 1


async def _run(
    options: argparse.Namespace, counted: Counted, kills: list[int], cpu: dict[str, float]
) -> None:
    rng = random.Random(options.seed)  # noqa: S311 - a repeatable plan
    async with stack(SHAPE) as running, await run.connected(running) as database:
        victims = Victims(running, rng)
        try:
            chaos = Chaos(running, database, victims, rng, counted, print_progress, options.at_once)
            await chaos.run_jobs(options.jobs, options.every, options.limit)
            await chaos.client.aclose()
            for part, seconds in running.cpu().items():
                cpu[part] = seconds + victims.cpu[part]
        finally:
            kills[:] = [victims.kills["api"], victims.kills["reconciler"]]
            if victims.crashes:
                print_progress(f"died of themselves: {dict(victims.crashes)}")
            victims.end()


def counts(jobs: int, counted: Counted, kills: list[int]) -> list[Measure]:
    """Return the counts of events, and the counts that must be zero."""

    def none(name: str, count: int) -> Measure:
        """Return a measure that must be zero."""
        return Measure(name=name, value=count, unit="", bar=0, limit=0)

    return [
        Measure(name="jobs", value=jobs, unit=""),
        Measure(name="kills_api", value=kills[0], unit=""),
        Measure(name="kills_reconciler", value=kills[1], unit=""),
        Measure(name="evictions", value=counted.evictions, unit=""),
        Measure(name="attempts", value=counted.attempts, unit=""),
        Measure(name="cancels", value=len(counted.cancels), unit=""),
        Measure(name="requests_sent_again", value=counted.retries, unit=""),
        Measure(name="looks", value=counted.polls, unit=""),
        none("jobs_unfinished", len(counted.unfinished)),
        none("forgotten", len(counted.forgotten)),
        none("doubled", len(counted.doubled)),
        Measure(name="left_to_the_sweep", value=len(counted.swept), unit=""),
        none("leaked", len(counted.leaked)),
        none("disordered", len(counted.disordered)),
        Measure(
            name="event_dated_too_early_s", value=counted.late_seconds, unit="s", bar=0, limit=0
        ),
    ]


def cpu_measures(cpu: Mapping[str, float]) -> list[Measure]:
    """Return the CPU seconds of each part, summed over all its processes."""
    return [Measure(name=f"cpu_s_{part}", value=cpu[part], unit="s") for part in sorted(cpu)]


def _options() -> argparse.Namespace:
    parser = report.option_parser("chaos", __doc__)
    add = parser.add_argument
    add("--jobs", type=int, default=500, help="Number of jobs (500).")
    add("--at-once", type=int, default=60, help="Maximum number of unfinished jobs (60).")
    add("--seed", type=int, default=1, help="Random seed of the kills and evictions (1).")
    add("--every", type=float, default=5.0, help="Average seconds between two kills (5).")
    add("--limit", type=float, default=1800.0, help="Seconds for all jobs to finish (1800).")
    add(
        "--latency",
        type=int,
        default=0,
        metavar="N",
        help="Measure the latency of N losses in each way instead of killing processes.",
    )
    add("--silence", type=float, default=30.0, help="Value of REKINDLE_SILENCE_SECONDS (30).")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
