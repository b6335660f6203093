"""Benchmark of stalls: the longest delay of other requests during an expensive request.

Run it with `python -m bench.stalls [--json [FILE]]`. It starts PostgreSQL and an api process, and
sends it the worst known inputs one by one and then all at once. Meanwhile it sends GET /livez and
a heartbeat every 20 ms. The result is the longest of these answers for each input, in ms. On a
busy machine the result also contains the delays of other load.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

import httpx

from bench import report
from bench.report import Measure
from bench.scale.stack import SECRET, ScaleStack, Shape, stack
from service.domain import tokens

EVERY = 0.02  # seconds between two probes
BAR_MS = 200.0
TIMEOUT = 120.0
MIB = 2**20
GRADERS = "/v1/fine_tuning/alpha/graders"
JOBS = "/v1/fine_tuning/jobs"
JSON = {"content-type": "application/json"}
NODE = {"authorization": f"Bearer {tokens.node_token(SECRET, 'n')}"}
Attack = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


def _post(path: str, body: bytes, headers: Mapping[str, str] = JSON) -> Attack:
    async def attack(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(path, content=body, headers=headers)

    return attack


def _file(line: bytes) -> Attack:
    async def attack(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(
            "/v1/files",
            files={"file": ("rows.jsonl", line + b"\n")},
            data={"purpose": "fine-tune"},
        )

    return attack


def _source(text: str) -> bytes:
    escaped = text.replace('"', '\\"').replace("\n", "\\n")
    grader = '{"type": "python", "name": "a", "source": "' + escaped + '"}'
    return ('{"grader": ' + grader + "}").encode()


def _items(item: bytes, size: int) -> bytes:
    return b"[" + b",".join([item] * (size // (len(item) + 1))) + b"]"


_F_STRING = "def grade(sample, item):\n return f'" + "{1}"
ATTACKS: dict[str, Attack] = {
    "nothing": _post("/v1/none", b"{}"),
    "f-string of 900 KB": _post(f"{GRADERS}/validate", _source(_F_STRING + "{1}" * 300_000 + "'")),
    "f-string of 30 KB": _post(f"{GRADERS}/validate", _source(_F_STRING + "{1}" * 10_000 + "'")),
    "1 MB of lists": _post(JOBS, _items(b"[]", MIB - 64)),
    "1 MB of numbers": _post(JOBS, b'{"model": ' + _items(b"1", MIB - 64) + b"}"),
    "1 MB of wrong items": _post(JOBS, b'{"integrations": ' + _items(b"1", MIB - 64) + b"}"),
    "1 MB as a name": _post(JOBS, b'{"' + b"model" * (MIB // 5 - 64) + b'": 1}'),
    "row of 15 MB of lists": _file(b'{"messages": ' + _items(b"[]", 15 * MIB) + b"}"),
    "row of 15 MB of numbers": _file(b'{"messages": ' + _items(b"1", 15 * MIB) + b"}"),
    "row of 1.4 MB of lists": _file(b'{"messages": ' + _items(b"[]", 1_400_000) + b"}"),
    "row of 15 MB of text": _file(
        b'{"messages": [{"role": "user", "content": "' + b"a b, " * (3 * MIB) + b'"}]}'
    ),
    "heartbeat of 4 MB": _post("/internal/nodes/n/heartbeat", _items(b"[]", 4 * MIB - 64), NODE),
}


def main() -> int:
    """Run the benchmark, print its measures and return the exit status."""
    options = report.option_parser("stalls", __doc__).parse_args()
    worst = report.run_to_exit(_run(), httpx.HTTPError)
    report.table(("input", "answered with", "longest wait ms"), worst)
    measures = [
        Measure(name=_name(attack), value=wait, unit="ms", bar=BAR_MS) for attack, _, wait in worst
    ]
    report.publish("stalls", measures, options.json)
    return 0


async def _run() -> list[tuple[str, str, float]]:
    async with stack(Shape(reconcilers=0)) as running, running.api_client(TIMEOUT) as client:
        results = [await _during(running, client, name, [ATTACKS[name]]) for name in ATTACKS]
        return [*results, await _during(running, client, "all at once", list(ATTACKS.values()))]


async def _during(
    running: ScaleStack, client: httpx.AsyncClient, name: str, attacks: list[Attack]
) -> tuple[str, str, float]:
    """Send the attacks; return the name, the statuses, and the longest wait of others in ms."""
    finished = asyncio.Event()
    readers = [
        asyncio.create_task(_longest(running, "GET", "/livez", finished)),
        asyncio.create_task(_longest(running, "POST", "/internal/nodes/n/heartbeat", finished)),
    ]
    answers = await asyncio.gather(*(attack(client) for attack in attacks))
    finished.set()
    waits = await asyncio.gather(*readers)
    codes = " ".join(str(answer.status_code) for answer in answers)
    return name, codes, round(1000 * max(waits), 1)


async def _longest(running: ScaleStack, method: str, path: str, finished: asyncio.Event) -> float:
    longest = 0.0
    async with running.api_client(TIMEOUT) as client:
        await client.get("/livez")  # opens the connection
        while not finished.is_set():
            start = time.perf_counter()
            await client.request(method, path)
            longest = max(longest, time.perf_counter() - start)
            await asyncio.sleep(EVERY)
    return longest


def _name(attack: str) -> str:
    return "stall_" + "".join(c if c.isalnum() else "_" for c in attack)


if __name__ == "__main__":
    sys.exit(main())
