"""Replay of a recording to the emulator, and comparison of the answers.

Operations are polled on the emulator's own clock; a poll in the recording stands for the end of
the operation. Instances are matched to recorded ones in the order of their first use.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from tests.clock import Clock
from tests.emulated.inside import Inside, emulator_inside
from tests.emulated.process import SUBSCRIPTION
from tests.recorded.shapes import lacking, shape

FACTS = Path(__file__).parent / "facts"
TABLE = "shapes.jsonl"
DEEP = 9
ENDED = ("Succeeded", "Failed", "Canceled")
TIMEOUT = 100  # maximum number of polls of an operation
INSTANCE = re.compile(r"(/virtualMachines/)(\d+)(?=/|$)", re.IGNORECASE)
MACHINE = re.compile(r"(/Microsoft.Compute/virtualMachines/)([\w-]+)", re.IGNORECASE)
SET = re.compile(r"(/subscriptions/.*/virtualMachineScaleSets/[^/]+)", re.IGNORECASE)
IN_GROUP = re.compile(r"/resourcegroups/([^/]+)", re.IGNORECASE)
# Clients vary the case of these words.
SPELLING = ("resourceGroups", "Microsoft.Compute", "virtualMachines", "powerOff", "reimageAll")
Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """One exchange, and the differences of the emulator's answer from Azure's."""

    recording: str
    operation: str
    differences: tuple[str, ...]


def recordings() -> list[str]:
    """Return the names of all recordings."""
    return sorted(file.stem for file in FACTS.glob("*.jsonl") if file.name != TABLE)


@cache
def shapes() -> list[Any]:
    """Return the shapes that rows refer to by line."""
    return [json.loads(line) for line in (FACTS / TABLE).read_text().splitlines()]


async def replay(name: str, folder: Path) -> list[Outcome]:
    """Play one recording to an emulator of its own."""
    rows = [json.loads(line) for line in (FACTS / f"{name}.jsonl").read_text().splitlines()]
    settings: dict[str, Any] = {"create_seconds": 2, "delete_seconds": 2, "spot_quota": 10**6}
    async with emulator_inside(folder, Clock(), empty=True, **settings) as inside:
        playing = Playing(inside)
        await playing.make_groups(rows)
        return [
            Outcome(name, operation(row, rows), tuple(await playing.differences(row)))
            for row in rows
        ]


def operation(row: Row, rows: list[Row]) -> str:
    """Return the name of a call: its method, and its path without names."""
    if "of" in row:
        return f"{row['header']} of {operation(rows[row['of']], rows)}"
    head, *provided = row["path"].split("/providers/", 1)
    if provided:
        namespace, *segments = provided[0].split("/")
        path = "/".join([namespace, *("{name}" if n % 2 else p for n, p in enumerate(segments))])
    else:
        path = re.sub("(resourcegroups/)[^/]+", r"\1{name}", head[1:], flags=re.IGNORECASE)
    for name in SPELLING:
        path = re.sub(rf"\b{re.escape(name)}\b", name, path, flags=re.IGNORECASE)
    return f"{row['method']} {path.removeprefix('subscriptions/{subscription}/')}"


@dataclass
class Playing:
    """An emulator, and the state that later exchanges of a recording need."""

    inside: Inside
    answers: list[httpx.Response] = field(default_factory=list)
    # By scale set and recorded id.
    instance_ids: dict[tuple[str, str], str] = field(default_factory=dict)

    async def make_groups(self, rows: list[Row]) -> None:
        """Create the resource groups that existed before the recording."""
        visited: set[str] = set()
        for row in rows:
            for name in IN_GROUP.findall(row["path"]):
                alone = row["path"].lower().endswith(f"/resourcegroups/{name}".lower())
                creates = (row["method"] in ("PUT", "HEAD") and alone) or row["status"] == 404
                if name not in visited and not creates:
                    at = (
                        r["location"] for r in rows if r["path"].endswith(name) and "location" in r
                    )
                    await self._make_group(name, next(at, "westus"))
                visited.add(name)

    async def _make_group(self, name: str, location: str) -> None:
        path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}"
        (await self.inside.arm.put(path, json={"location": location})).raise_for_status()

    async def differences(self, row: Row) -> list[str]:
        """Send a recorded request and return the differences of its answer."""
        if "of" in row:
            answer = await self._end(self.answers[row["of"]], row["header"])
        else:
            answer = await self._send(row)
            if row["path"].endswith("/simulateEviction"):
                await self.inside.pass_time(60, 5)  # it has no operation to poll
        self.answers.append(answer)
        return list(_compared(row, answer))

    async def _send(self, row: Row) -> httpx.Response:
        path = self._addressed(row["path"])
        params = row.get("query", {}) | {"api-version": row["version"]}
        body = row.get("body")
        if isinstance(body, dict) and isinstance(ids := body.get("instanceIds"), list):
            body = body | {"instanceIds": [self._instance(path, i) for i in ids]}
        text = None
        if body is not None:
            text = json.dumps(body).replace("{subscription}", SUBSCRIPTION)
        return await self.inside.arm.request(
            row["method"],
            path,
            params=params,
            content=text,
            headers={"Content-Type": "application/json"} if text else {},
        )

    async def _end(self, begun: httpx.Response, header: str) -> httpx.Response:
        if header not in begun.headers:
            return httpx.Response(599)  # no address to poll
        answer = await self.inside.follow(begun.headers[header])
        for _ in range(TIMEOUT):
            status = answer.json().get("status", ENDED[0]) if answer.content else ENDED[0]
            if answer.status_code != 202 and status in ENDED:
                return answer
            await self.inside.pass_time(3)
            for _ in range(50):  # lets a deployment's task run
                await asyncio.sleep(0)
            answer = await self.inside.follow(begun.headers[header])
        return answer

    def _addressed(self, path: str) -> str:
        path = path.replace("{subscription}", SUBSCRIPTION)
        if not SET.search(path):
            return MACHINE.sub(lambda m: m[1] + self._instance(path, m[2]), path)
        return INSTANCE.sub(lambda m: m[1] + self._instance(path, m[2]), path)

    def _instance(self, path: str, recorded: str) -> str:
        """Return the emulator's id for a recorded one: the first unused id."""
        match = SET.match(path)
        key = (match or IN_GROUP.search(path) or [""])[0].lower()
        instances = [
            i
            for s in self.inside.fabric.state.scale_sets.values()
            if (s.key == key if match else key in s.key)
            for i in s.instances
        ]
        used = [emulated for (where, _), emulated in self.instance_ids.items() if where == key]
        free = sorted((i for i in instances if i not in used), key=lambda i: (len(i), i))
        if recorded == "*" or (not free and (key, recorded) not in self.instance_ids):
            return recorded
        return self.instance_ids.setdefault((key, recorded), free[0] if free else recorded)


def _compared(row: Row, answer: httpx.Response) -> Iterator[str]:
    body = answer.json() if answer.content else None
    code = _code(body)
    if answer.status_code == 599:
        yield f"no {row['header']} to follow"
        return
    if answer.status_code != row["status"]:
        yield f"status {row['status']}, not {answer.status_code}{f' {code}' * bool(code)}"
    if (row["status"] < 400) != (answer.status_code < 400):
        return
    if "state" in row and (state := (body or {}).get("status")) != row["state"]:
        yield f"ends {row['state']}, not {state}{f' {code}' * bool(code)}"
        return
    if code != row.get("error", ""):
        yield f"code {row.get('error') or 'none'}, not {code or 'none'}"
    for header in row.get("headers", []):
        if header not in answer.headers:
            yield f"no header {header}"
    if "shape" in row:
        yield from lacking(shapes()[row["shape"]], shape(body, DEEP))


def _code(body: Any) -> str:  # noqa: ANN401 - JSON
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("code", "")) if isinstance(error, dict) else ""
