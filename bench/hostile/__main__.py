"""Benchmark of an api process under attack: memory and latency.

Run it with `python -m bench.hostile [--only WORDS] [--json [FILE]]`. It starts PostgreSQL and an
api process on fakes (those of bench.scale) and attacks it from a separate process: overlong or
endless request heads, pipelined requests, incomplete bodies, and clients that never read. It
measures the memory of the api process in MiB and the slowest answer of /livez in ms.
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import httpx
import psutil

from bench import report
from bench.hostile.attacks import ATTACKS
from bench.report import CannotMeasure, Measure
from bench.scale.stack import ScaleStack, Shape, raise_file_limit, stack

SAMPLE_SECONDS = 0.1  # seconds between two samples of memory and /livez
REST_SECONDS = 3.0  # seconds for the process to release memory
CONNECTIONS = 2000
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """Memory, latency and answers during one attack."""

    attack: str
    before: float  # MiB
    peak: float
    after: float
    livez: float  # slowest answer, ms
    answers: dict[str, int]
    cut: int


def main() -> int:
    """Run all chosen attacks, print the table and return the exit status."""
    parser = report.option_parser("hostile", __doc__)
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="Run the attacks whose name has these words."
    )
    options = parser.parse_args()
    results = report.run_to_exit(_run(options.only), httpx.HTTPError)
    report.table(
        ("attack", "before MiB", "peak MiB", "after MiB", "livez ms", "cut", "answers"),
        [
            (s.attack, s.before, s.peak, s.after, s.livez, s.cut, json.dumps(s.answers))
            for s in results
        ],
    )
    rows = [vars(s) for s in results]
    report.publish("hostile", _measures(results), options.json, rows=rows)
    return 0


def _measures(results: list[AttackResult]) -> list[Measure]:
    return [
        measure
        for s in results
        for measure in (
            Measure(name=f"{s.attack}, memory", value=round(s.peak - s.before, 1), unit="MiB"),
            Measure(name=f"{s.attack}, livez", value=s.livez, unit="ms"),
        )
    ]


async def _run(only: str) -> list[AttackResult]:
    raise_file_limit(CONNECTIONS)
    async with stack(Shape(reconcilers=0)) as running:
        return [await _measure_attack(running, name) for name in ATTACKS if only in name]


async def _measure_attack(running: ScaleStack, name: str) -> AttackResult:
    """Run one attack and sample the api process until it ends."""
    (process,), (port,) = running.processes["api"], running.ports
    memory, slowest = [_mib(process)], 0.0
    command = [sys.executable, "-m", "bench.hostile.attacks", name, str(port), running.key]
    attack = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    completion = asyncio.create_task(attack.communicate())
    async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
        while not completion.done():
            start = time.monotonic()
            await client.get(f"http://127.0.0.1:{port}/livez")
            slowest = max(slowest, time.monotonic() - start)
            memory.append(_mib(process))
            await asyncio.wait({completion}, timeout=SAMPLE_SECONDS)
    out, _ = await completion
    if attack.returncode:
        raise CannotMeasure(f"the attack {name!r} failed")
    await asyncio.sleep(REST_SECONDS)
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return AttackResult(
        attack=name,
        before=memory[0],
        peak=max(memory),
        after=_mib(process),
        livez=round(slowest * 1000, 1),
        answers=result["answers"],
        cut=result["cut"],
    )


def _mib(process: psutil.Process) -> float:
    return round(process.memory_info().rss / MIB, 1)


if __name__ == "__main__":
    sys.exit(main())
