"""What exists right now, asked from outside: the emulator's lists, and the service's attempts.

The emulator is asked first. An attempt only ever moves on, and its successor comes after, so
that what is seen together was true together or is further on by now.
"""

import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg

from rekindle.layout import CLIENT, SUBSCRIPTION, TENANT, Layout

ATTEMPT_TAG, JOB_TAG = "rekindle-attempt", "rekindle-job"
API_VERSION = "2024-07-01"


@dataclass(frozen=True, kw_only=True)
class Vm:
    """One emulated machine; ``pid`` is its init process, None unless it runs."""

    scale_set: str
    instance_id: str
    vm_id: str
    state: str
    pid: int | None
    folder: Path

    @property
    def work(self) -> Path:
        """The supervisor's folder on its disk."""
        return self.folder / "fs" / "mnt" / "rekindle"


@dataclass(frozen=True, kw_only=True)
class ScaleSet:
    """One scale set as ARM lists it."""

    name: str
    job: str  # of its tags; empty without
    attempt: str
    state: str  # provisioningState
    created_at: float


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt's row."""

    id: str
    job: str
    number: int
    state: str
    created_at: float

    @property
    def holds(self) -> bool:
        """Whether it may have machines and is not giving them back."""
        return self.state not in ("terminating", "ended")


@dataclass(frozen=True, kw_only=True)
class Sight:
    """One look at all of it."""

    at: float
    sets: Sequence[ScaleSet] = ()
    vms: Sequence[Vm] = ()
    attempts: Mapping[str, Attempt] = field(default_factory=dict)

    def newest(self, job: str) -> Attempt | None:
        """The job's newest attempt."""
        own = (a for a in self.attempts.values() if a.job == job)
        return max(own, key=lambda a: a.number, default=None)

    def machines(self, attempt: str) -> list[Vm]:
        """The machines of an attempt, in the order of their ids."""
        names = {s.name for s in self.sets if s.attempt == attempt}
        return sorted((v for v in self.vms if v.scale_set in names), key=lambda v: v.vm_id)


class Eyes:
    """Looks, over connections that stay open."""

    def __init__(self, layout: Layout, database: psycopg.AsyncConnection[Any]) -> None:
        trust = ssl.create_default_context(cafile=layout.ca)
        self._layout = layout
        self._arm = httpx.AsyncClient(base_url=layout.arm_url, verify=trust, trust_env=False)
        self._admin = httpx.AsyncClient(base_url=layout.metadata_url, trust_env=False)
        self._database = database
        self._token = ""

    async def close(self) -> None:
        """End the connections."""
        await self._arm.aclose()
        await self._admin.aclose()

    async def look(self, jobs: Iterable[str]) -> Sight:
        """The cloud, then the attempts of these jobs."""
        at = time.time()
        sets, vms = await self._sets(), await self._vms()
        query = """select id, job_id, number, state, created_at from attempts
                   where job_id = any(%s)"""
        rows = await (await self._database.execute(query, [list(jobs)])).fetchall()
        found = (
            Attempt(id=r[0], job=r[1], number=r[2], state=r[3], created_at=r[4].timestamp())
            for r in rows
        )
        return Sight(at=at, sets=sets, vms=vms, attempts={a.id: a for a in found})

    async def evict(self, vm: Vm, *, notice: bool) -> bool:
        """Azure takes the machine; without notice it is dead when this returns.

        False: it was on its way out already.
        """
        body = {"scale_set": vm.scale_set, "instance_id": vm.instance_id, "notice": notice}
        answer = await self._admin.post("/_emulator/evict", json=body, timeout=30)
        if answer.status_code in (httpx.codes.CONFLICT, httpx.codes.NOT_FOUND):
            return False
        answer.raise_for_status()
        return True

    async def _vms(self) -> list[Vm]:
        answer = await self._admin.get("/_emulator/virtualMachines")
        return [_vm(row) for row in answer.raise_for_status().json()["value"]]

    async def _sets(self) -> list[ScaleSet]:
        url = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachineScaleSets"
        rows: list[ScaleSet] = []
        next_page: str | None = f"{url}?api-version={API_VERSION}"
        while next_page:
            answer = await self._arm.get(next_page, headers=await self._headers())
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                self._token = ""
                continue
            page = answer.raise_for_status().json()
            rows += [_scale_set(row) for row in page["value"]]
            next_page = page.get("nextLink")
        return rows

    async def _headers(self) -> dict[str, str]:
        if not self._token:
            form = {
                "grant_type": "client_credentials",
                "client_id": CLIENT,
                "client_secret": self._layout.client_secret,
                "scope": f"{self._layout.arm_url}/.default",
            }
            answer = await self._arm.post(f"/{TENANT}/oauth2/v2.0/token", data=form)
            self._token = answer.raise_for_status().json()["access_token"]
        return {"Authorization": f"Bearer {self._token}"}


def _vm(row: Mapping[str, Any]) -> Vm:
    known = {k: row[k] for k in ("scale_set", "instance_id", "vm_id", "state", "pid")}
    return Vm(**known, folder=Path(row["folder"]))


def _scale_set(row: Mapping[str, Any]) -> ScaleSet:
    tags, properties = row.get("tags", {}), row["properties"]
    return ScaleSet(
        name=row["name"],
        job=tags.get(JOB_TAG, ""),
        attempt=tags.get(ATTEMPT_TAG, ""),
        state=properties["provisioningState"],
        created_at=datetime.fromisoformat(properties["timeCreated"]).timestamp(),
    )
