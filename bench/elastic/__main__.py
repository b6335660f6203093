"""Benchmark of elastic training against rigid training.

Run it with `python -m bench.elastic [--boot-seconds S] [--epochs N] [--json [FILE]]`. It runs the
same job of four nodes twice on a local stack: elastic, and rigid (fixed number of nodes). Each
run loses one machine without notice and one with notice. Exit 2: it could not measure. Ctrl-C
stops everything that it started.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psycopg

from bench import report
from bench.elastic import measures, run
from bench.elastic.lives import JobHistory
from bench.report import CANNOT_MEASURE, INTERRUPTED, CannotMeasure, print_progress
from rekindle.local.running_stack import TargetNotFound
from rekindle.local.state_folder import StackStartError

HEAD = ("from the strike", "on nodes", *measures.PARTS, "lost steps")
NOTES = [
    "seconds from the strike: detect, halt, machines and load follow on each other and are"
    " training together; full is until a step on all nodes again",
    "all nodes share the cores of this machine, so three train as fast as four, and a machine"
    " boots in seconds: differences of goodput say nothing of Azure",
]
FAULTS = (StackStartError, CannotMeasure, TargetNotFound, httpx.HTTPError, psycopg.Error)


def main() -> int:
    """Run the benchmark and return whether it could be measured, as an exit status."""
    options = _options()
    folder = options.state or Path(tempfile.mkdtemp(prefix="rekindle-bench-"))
    plan = run.ElasticOptions(epochs=options.epochs, boot_seconds=options.boot_seconds)
    start = time.monotonic()
    try:
        histories = asyncio.run(run.run(plan, folder.resolve(), options.port, print_progress))
    except KeyboardInterrupt:
        print_progress(f"interrupted; everything that it started has ended; state: {folder}")
        return INTERRUPTED
    except FAULTS as error:
        print_progress(
            f"cannot measure: {type(error).__name__}: {error}; the stack's state is in {folder}"
        )
        return CANNOT_MEASURE
    _show(plan, histories, time.monotonic() - start, options.json)
    if options.state is None:
        shutil.rmtree(folder)
    return 0


def _options() -> argparse.Namespace:
    parser = report.option_parser("elastic", __doc__)
    add = parser.add_argument
    add("--boot-seconds", type=float, help="Seconds until a machine is there (3).")
    steps = run.STEPS_AN_EPOCH
    add("--epochs", type=int, default=44, help=f"Number of epochs of {steps} steps each (44).")
    add("--state", type=Path, help="Folder of the stack (a temporary one).")
    add("--port", type=int, help="First of four consecutive ports (free ones).")
    return parser.parse_args()


def _show(
    plan: run.ElasticOptions, histories: list[JobHistory], seconds: float, to: Path | None
) -> None:
    elastic, rigid = histories
    results = measures.measures(elastic, rigid)
    report.table(HEAD, measures.rows(histories))
    report.publish(
        "elastic",
        results,
        to,
        arguments={"epochs": plan.epochs, "boot_seconds": plan.boot_seconds},
        seconds=round(seconds, 1),
        step_s_by_nodes={history.job: history.step_seconds for history in histories},
        notes=NOTES,
    )


if __name__ == "__main__":
    sys.exit(main())
