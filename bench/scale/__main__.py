"""Scale benchmark: CPU, memory and latency of the service with many jobs and nodes.

Run it with `python -m bench.scale [--jobs N --nodes N --seconds S] [--json [FILE]]`. It starts
PostgreSQL, api and reconciler processes, a fake cloud, and simulated nodes that use the node
protocol over HTTP. It adds the jobs in up to four stages and measures S seconds of each. Then it
evicts all nodes at once and cancels the jobs. The bars are meant for 5000 jobs and 10000 nodes.
"""

import argparse
import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import httpx
import psycopg

from bench import report
from bench.report import CANNOT_MEASURE, INTERRUPTED, CannotMeasure, print_progress
from bench.scale import measures
from bench.scale.parts.line import Broken
from bench.scale.run import ScaleFindings, ScaleOptions, Window, run
from bench.scale.stack import Shape, raise_file_limit, stack

FAULTS = (CannotMeasure, Broken, httpx.HTTPError, psycopg.Error)
NOTES = [
    "eviction_burst_s, cancel_2000_s and submit_10000_s are in proportion where there were fewer",
    "eviction burst: all nodes report a notice at once and stop when the service asks for it",
    "cpu: of api, reconciler and PostgreSQL; the cloud's and Blob's own clients are not in it",
    "heartbeats come over 512 kept connections per api process (a real node has its own), long"
    " polls over one per node",
    "Azure's request limits are taken for 1,000 times as large: else its 125 new scale sets a"
    " minute and region would be all that is measured after a burst",
    "arm_calls_per_node_hour: a set that is quiet is looked at after 10 minutes for the first time,"
    " later than a window lasts (two calls for each look: docs/adr/0030)",
    "no other system has published these figures; pgbench does only the write of a heartbeat",
]


def main() -> int:
    """Run the benchmark, print its tables and return the exit status."""
    options = _options()
    findings = ScaleFindings()
    order = ScaleOptions(jobs=options.jobs, nodes=options.nodes, seconds=options.seconds)
    shape = Shape(
        apis=options.apis,
        reconcilers=options.reconcilers,
        beat=options.beat,
        arm_ms=options.arm_ms,
        blob_ms=options.blob_ms,
    )
    status = 0
    try:
        asyncio.run(_run(shape, order, findings, options.logs))
    except KeyboardInterrupt:
        status = INTERRUPTED
    except FAULTS as error:
        status = CANNOT_MEASURE
        print_progress(f"cannot measure: {type(error).__name__}: {error}")
    result = measures.measures(findings)
    _show(findings)
    arguments, windows = {**vars(order), **vars(shape)}, [_row(w) for w in findings.windows]
    details = {"arguments": arguments, "windows": windows, "notes": NOTES}
    report.publish("scale", result, options.json, **details)
    return status


async def _run(
    shape: Shape, order: ScaleOptions, findings: ScaleFindings, logs: Path | None
) -> None:
    raise_file_limit(order.nodes)
    async with stack(shape) as running:
        try:
            await run(running, order, findings, print_progress)
        finally:
            if logs:
                shutil.copytree(running.folder / "logs", logs, dirs_exist_ok=True)


def _options() -> argparse.Namespace:
    parser = report.option_parser("scale", __doc__)
    add = parser.add_argument
    add("--jobs", type=int, default=60, help="Number of live jobs (60).")
    add("--nodes", type=int, default=120, help="Nodes of all jobs, a multiple of --jobs (120).")
    add("--seconds", type=float, default=5, help="Seconds of each measurement (5).")
    add("--apis", type=int, default=1, help="Number of api processes (1).")
    add("--reconcilers", type=int, default=1, help="Number of reconciler processes (1).")
    add("--beat", type=float, default=9.9, help="Seconds between two heartbeats of a node (9.9).")
    add("--arm-ms", type=float, default=100, help="Latency of Azure in ms (100).")
    add("--blob-ms", type=float, default=10, help="Latency of Blob in ms (10).")
    add("--logs", type=Path, metavar="FOLDER", help="Folder for the logs of the processes.")
    options = parser.parse_args()
    if options.nodes % options.jobs:
        parser.error("--nodes must be a multiple of --jobs")
    return options


def _show(findings: ScaleFindings) -> None:
    head = ("jobs", "nodes", "api", "reconciler", "postgres", "commits/s", "arm/s", "MiB")
    rows = []
    for w in findings.windows:
        cpu = [round(w.cpu[n] / w.seconds, 3) for n in measures.SERVICE]
        rates = [round(w.transactions / w.seconds), round(w.arm / w.seconds, 2)]
        rows.append((w.jobs, w.nodes, *cpu, *rates, round(w.kib / 1024)))
    report.table(head, rows)


def _row(window: Window) -> dict[str, Any]:
    plain = {name: value for name, value in vars(window).items() if name != "took"}
    return plain | {"heartbeats": len(window.took)}


if __name__ == "__main__":
    sys.exit(main())
