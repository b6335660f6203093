"""Benchmark of saving and loading checkpoints: stall, throughput, CPU and memory.

Run it with `python -m bench.checkpoint [--gib X ...] [--ranks N ...] [--wire plain tls]
[--json [FILE]]`. Every contestant saves the same state to a small blob store on this machine (the
sink) and loads it back. The state is the fp32 master weights and both Adam moments of a DeepSpeed
engine, partitioned by ZeRO.

Columns of the table. A row is one contestant in one case:

    blocked     seconds until the save call returned; training waits for this long
    stall       seconds that training lost to one save, measured from the call until the save is
                stored and committed. The baseline is a loop that never saves. A step sleeps
                0.05 s, in place of GPU work, and then synchronizes all ranks; so slowdowns by
                background work count too
    save, load  GiB of state per second, until the save is stored and committed, or the load is in
                the engine. Other bytes (16-bit weights) do not count; see `stored`
    cpu         CPU seconds of all its processes per GiB, with the supervisor, without the sink
    mem         peak memory of all its processes above the start, in bytes per byte of state,
                without the page cache
    stored      bytes received by the sink, per byte of state
    bytes       "same": two loads into zeroed state restored every element, although training had
                changed the original meanwhile, and the sink sent every byte of them

`rekindle` is the current code. `raw_sink` sends the state's memory over bare HTTP connections
without hashes; `raw_sockets` sends bytes without HTTP and stores nothing. Both are upper limits,
not ways to save. Client and sink share the cores of this machine, so compare rows of one run with
each other and not with a real network. Times are the best of all tries, memory is the worst.

The measures below the table are those of the last case: largest state, most ranks, plain. A
missed bar does not change the exit status. Exit 1: bytes differed. Exit 2: it could not measure.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

import psutil

from bench import report
from bench.checkpoint import measures, run, sink
from bench.checkpoint.case import GIB, MIB, REKINDLE, CheckpointCase
from bench.checkpoint.limits import Raw
from bench.checkpoint.measures import ContestantRow
from bench.report import CANNOT_MEASURE, CannotMeasure, print_progress

DIFFERED = 1
SHARE = 0.85  # maximum share of free memory for one case
NOTES = [
    "reshard_s: rivals none. torch.save and DCP under keys of their ranks cannot load on another"
    " number of ranks; DeepSpeed needs its offline conversion, which is not measured here",
    "emergency_s: from the call to the commit, nothing else going on",
    "stall_pct: at the interval that the formula gives for this stall and this save time, at 7.5 %"
    " evictions an hour without notice",
]


@dataclass
class CheckpointFindings:
    """Rows of all finished cases, and the reasons for the missing ones."""

    rows: list[ContestantRow] = field(default_factory=list)
    reshards: list[ContestantRow] = field(default_factory=list)
    raws: dict[bool, Raw] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def main() -> int:
    """Run all cases, print them and return whether every byte came back, as an exit status."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that SIGTERM stops the ranks too
    findings = CheckpointFindings()
    warm = int(max(options.gib) * 2.5 * 1024)
    with (
        tempfile.TemporaryDirectory(prefix="rekindle-bench-", dir=options.state) as name,
        sink.running(Path(name), warm_mib=warm, check=options.check, kind=options.sink) as store,
    ):
        if store.kind == "python":
            print_progress("no C compiler: the sink is in Python, and it is what limits every row")
        tools = run.CheckpointTools(sink=store, folder=Path(name), packages=options.packages)
        try:
            _measure(tools, options, findings)
        except KeyboardInterrupt:
            findings.missing.append("interrupted: what follows was measured before")
    _show(findings)
    report.publish(
        "checkpoint", _last(findings), options.json, **_details(options, findings, store)
    )
    if any(not r.same for r in (*findings.rows, *findings.reshards)):
        return DIFFERED
    return CANNOT_MEASURE if findings.missing else 0


def _options() -> argparse.Namespace:
    parser = report.option_parser("checkpoint", __doc__)
    add = parser.add_argument
    add("--gib", type=float, nargs="+", default=[0.25], help="GiB of state on all ranks (0.25).")
    add("--ranks", type=int, nargs="+", default=[1, 2], help="Numbers of ranks (1 2).")
    wires = ("plain", "tls")
    add("--wire", nargs="+", choices=wires, default=wires, help="Kinds of connections (both).")
    add("--only", nargs="+", default=[], metavar="NAME", help="Contestants to measure (all).")
    add("--saves", type=int, default=2, help="Number of saves, of which the best counts (2).")
    add("--steps", type=int, default=20, help="Steps of the loop that never saves (20).")
    add("--check", action="store_true", help="Let the sink check every CRC-64.")
    add("--sink", choices=("c", "python"), default="", help="Required program of the sink.")
    add(
        "--packages",
        default="",
        metavar="FOLDER",
        help="Folder with packages that only rivals import. Fill it with: pip install --target"
        " FOLDER --no-deps adlfs azure-datalake-store adal.",
    )
    add("--state", type=Path, metavar="FOLDER", help="Folder for saves on their way to the sink.")
    return parser.parse_args()


def _measure(
    tools: run.CheckpointTools, options: argparse.Namespace, findings: CheckpointFindings
) -> None:
    for wire in options.wire:
        findings.raws[wire == "tls"] = run.raw(tools, tls=wire == "tls")
    names = [n for n in run.contestants(tools.packages) if n in options.only or not options.only]
    for case in _cases(tools, options):
        for name in names:
            _one(tools, CheckpointCase(**{**asdict(case), "contestant": name}), findings)


def _cases(tools: run.CheckpointTools, options: argparse.Namespace) -> Iterator[CheckpointCase]:
    """Yield all cases; the case of the headline measures comes last."""
    wires = sorted(options.wire, reverse=True)
    for gib, ranks, wire in product(sorted(options.gib), sorted(options.ranks), wires):
        yield CheckpointCase(
            contestant="",
            mib=round(gib * GIB / MIB),
            ranks=ranks,
            tls=wire == "tls",
            url=tools.sink.url(tls=wire == "tls"),
            folder="",
            saves=options.saves,
            steps=options.steps,
        )


def _one(tools: run.CheckpointTools, case: CheckpointCase, findings: CheckpointFindings) -> None:
    label = (
        f"{case.contestant}, {case.mib} MiB, {case.ranks} ranks, {'tls' if case.tls else 'plain'}"
    )
    needed, free = run.needed_gib(case), psutil.virtual_memory().available / GIB
    if needed > free * SHARE:
        findings.missing.append(f"{label}: needs about {needed:.1f} GiB, {free:.1f} are free")
        return
    print_progress(label)
    try:
        if case.contestant == REKINDLE:
            ranks = 2 if case.ranks == 1 else case.ranks // 2
            same, reshard = run.measure_rekindle(tools, case, ranks)
            findings.rows.append(same)
            findings.reshards.append(reshard)
        else:
            findings.rows.append(run.measure(tools, case))
    except CannotMeasure as e:
        tools.sink.reset()
        findings.missing.append(f"{label}: {e}")


def _last(findings: CheckpointFindings) -> list[report.Measure]:
    """Return the measures of the last case, or none without Rekindle's row."""
    if not findings.rows:
        return []
    last = findings.rows[-1]
    rows = [r for r in findings.rows if (r.mib, r.ranks, r.tls) == (last.mib, last.ranks, last.tls)]
    if all(r.contestant != REKINDLE for r in rows):
        return []
    return measures.measures(rows, findings.reshards[-1], findings.raws[last.tls])


def _show(findings: CheckpointFindings) -> None:
    lines = [measures.raw_cells(raw, tls=tls) for tls, raw in findings.raws.items()]
    report.table(measures.HEAD, [*lines, *map(measures.cells, findings.rows)])
    if findings.reshards:
        report.table(
            ("on another number of ranks", *measures.HEAD[1:]),
            list(map(measures.cells, findings.reshards)),
        )
    for line in findings.missing:
        print_progress(f"MISSING: {line}")


def _details(
    options: argparse.Namespace, findings: CheckpointFindings, store: sink.Sink
) -> dict[str, object]:
    return {
        "arguments": {"gib": options.gib, "ranks": options.ranks, "wire": options.wire},
        "sink": {"kind": store.kind, "checks_crc64": options.check},
        "cases": [asdict(r) for r in findings.rows],
        "reshards": [asdict(r) for r in findings.reshards],
        "raw_sockets": {"tls" if tls else "plain": asdict(r) for tls, r in findings.raws.items()},
        "missing": findings.missing,
        "notes": NOTES,
    }


if __name__ == "__main__":
    sys.exit(main())
