"""Recovery benchmark: lost steps, recovery times and broken promises under planned kills.

Run it with `python -m bench.recovery --kills N --seed S [--engine E] [--json [FILE]] [--state
DIR]`. It starts a local stack, runs real jobs on it, and kills the service, supervisors, trainers
and machines in every phase. Exit 1: a promise was broken. Exit 2: it could not measure. Ctrl-C
prints the measures so far and exits with 130.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import psycopg
from azure.core.exceptions import AzureError

from bench import ports, report
from bench.recovery import measures, run
from bench.recovery.book import Book
from bench.recovery.observed.records import JobRecord
from bench.report import CANNOT_MEASURE, INTERRUPTED, CannotMeasure, print_progress
from contract.choices import Engine
from rekindle.local.layout import StackLayout
from rekindle.local.state_folder import StackPorts, StackStartError, StateFolder

BOTH = "both"
RESTARTS = 1000  # maximum per minute; high, because kills are intended
BROKEN = 1
NOTES = [
    "rivals: SkyPilot and dstack need a cloud and cannot run here. periodic_checkpoints_only is"
    " computed from the same kills: what a policy that heeds no notice had lost",
    "lost steps: of kills that hit a training job (step, save, commit)",
    "recovery times: of kills that cost a generation and that no other kill fell upon",
    "notice_to_decision_s: without the notices that came while the service was being killed or a"
    " killed one's lease (6 s) still held; those are notice_to_decision_after_service_kill_s",
]
FAULTS = (StackStartError, CannotMeasure, httpx.HTTPError, psycopg.Error, AzureError)


def main() -> int:
    """Run the benchmark, print its tables and return whether every promise was kept."""
    options = _options()
    folder = options.state or Path(tempfile.mkdtemp(prefix="rekindle-bench-"))
    book = Book(kills=options.kills, seed=options.seed)
    records: dict[str, JobRecord] = {}
    start = time.monotonic()
    status = 0
    try:
        asyncio.run(run.run(book, records, _layout(options, folder), print_progress))
    except KeyboardInterrupt:
        status = INTERRUPTED
        print_progress("interrupted; everything that it started has ended")
    except FAULTS as error:
        status = CANNOT_MEASURE
        print_progress(f"cannot measure: {type(error).__name__}: {error}")
    result = measures.measures(book, records)
    _show(book, records)
    evidence = _evidence(book)
    for line in evidence:
        print_progress(f"BROKEN: {line}")
    if measures.broken(result):
        status = status or BROKEN
    recovery_count = len(measures.recoveries(book, records))
    details = _details(book, evidence, time.monotonic() - start, recovery_count)
    report.publish("recovery", result, options.json, **details)
    if status:
        print_progress(f"the stack's state is kept in {folder}")
    elif options.state is None:
        shutil.rmtree(folder)
    return status


def _options() -> argparse.Namespace:
    parser = report.option_parser("recovery", __doc__)
    add = parser.add_argument
    add("--kills", type=int, default=20, help="Number of kills (20).")
    add("--seed", type=int, default=1, help="Random seed of the plan (1).")
    engines, default = [*Engine, BOTH], Engine.SCALE_SET
    add("--engine", choices=engines, default=default, help=f"Azure service of the VMs ({default}).")
    add("--state", type=Path, help="Folder of the stack (a temporary one).")
    add("--port", type=int, help="First of four consecutive ports (free ones).")
    return parser.parse_args()


def _layout(options: argparse.Namespace, folder: Path) -> StackLayout:
    engines = tuple(Engine) if options.engine == BOTH else (Engine(options.engine),)
    free = StackPorts.starting_at(options.port or ports.free(4))
    return StackLayout(StateFolder(folder.resolve()), free, restarts=RESTARTS, engines=engines)


def _show(book: Book, records: Mapping[str, JobRecord]) -> None:
    head = ("", "kills", "lost p50", "s p50", "s p99")
    report.table(("by kind", *head[1:]), measures.by(book, "kind"))
    report.table(("by phase", *head[1:]), measures.by(book, "phase"))
    recoveries = measures.recoveries(book, records)
    pieces = measures.piece_rows(recoveries)
    report.table((f"pieces of {len(recoveries)} recoveries", "s p50", "s p99"), pieces)
    print_progress(
        f"attempts: {', '.join(f'{n} {e}' for e, n in Counter(book.engines.values()).items())}"
    )


def _evidence(book: Book) -> list[str]:
    return [
        *book.unfinished,
        *(book.leaked or ()),
        *sorted(book.doubled),
        *sorted(book.torn),
        *book.mismatches,
    ]


def _details(
    book: Book, evidence: Sequence[str], seconds: float, recovery_count: int
) -> dict[str, Any]:
    kinds = {row[0]: row[1] for row in measures.by(book, "kind")}
    phases = {row[0]: row[1] for row in measures.by(book, "phase")}
    return {
        "arguments": {"kills": book.kills, "seed": book.seed},
        "attempts_by_engine": Counter(book.engines.values()),
        "seconds": round(seconds, 1),
        "kills_by_kind": kinds,
        "kills_by_phase": phases,
        "jobs": len(book.outcomes),
        "checkpoints_checked": book.checked_checkpoints,
        "looks": book.snapshots,
        "recoveries_measured": recovery_count,
        "notes": NOTES,
        "broken": list(evidence),
    }


if __name__ == "__main__":
    sys.exit(main())
