"""Snapshot of machines, scale sets and attempts, from the emulator and the service's database.

The emulator is read first. Attempts only move forward, and a successor is created after its
predecessor. So every attempt in a snapshot is at least as far as the machines show.
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

from contract.choices import Engine
from rekindle.local.layout import CLIENT, SUBSCRIPTION, TENANT, StackLayout
from rekindle.local.subscription_setup import SPACE

ATTEMPT_TAG, JOB_TAG = "rekindle-attempt", "rekindle-job"
COMPUTE = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute"
SETS = f"{COMPUTE}/virtualMachineScaleSets?api-version=2024-07-01"
CLUSTERS = f"{SPACE}/computes?api-version=2023-08-01-preview"


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
        """The supervisor's folder on the machine; in Azure ML that of the job's newest start."""
        starts = self.folder.glob("azureml/*/rekindle")
        newest = max(starts, key=lambda f: f.stat().st_mtime, default=None)
        return newest or self.folder / "fs" / "mnt" / "rekindle"

    @property
    def in_azureml(self) -> bool:
        """Whether it is a node of an Azure ML cluster, whose emulated scale set is CLUSTER-MARK."""
        return self.scale_set.count("-") > 1


@dataclass(frozen=True, kw_only=True)
class SnapshotScaleSet:
    """One scale set or Azure ML cluster, as ARM lists it."""

    name: str
    job: str  # from its tag; empty without one
    attempt: str
    state: str  # provisioningState
    created_at: float
    engine: Engine = Engine.SCALE_SET


@dataclass(frozen=True, kw_only=True)
class SnapshotAttempt:
    """One row of the attempts table."""

    id: str
    job: str
    number: int
    state: str
    created_at: float

    @property
    def has_machines(self) -> bool:
        """Whether it may have machines and is not releasing them."""
        return self.state not in ("terminating", "ended")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One snapshot."""

    at: float
    sets: Sequence[SnapshotScaleSet] = ()
    vms: Sequence[Vm] = ()
    attempts: Mapping[str, SnapshotAttempt] = field(default_factory=dict)

    def newest(self, job: str) -> SnapshotAttempt | None:
        """Return the newest attempt of the job, or None."""
        own = (a for a in self.attempts.values() if a.job == job)
        return max(own, key=lambda a: a.number, default=None)

    def machines(self, attempt: str) -> list[Vm]:
        """Return the machines of an attempt, sorted by VM id."""
        names = {s.name for s in self.sets if s.attempt == attempt}
        # The first two parts are the name of the scale set or the cluster.
        vms = (v for v in self.vms if "-".join(v.scale_set.split("-")[:2]) in names)
        return sorted(vms, key=lambda v: v.vm_id)


class ClusterView:
    """Reader of snapshots, with persistent connections."""

    def __init__(self, layout: StackLayout, database: psycopg.AsyncConnection[Any]) -> None:
        trust = ssl.create_default_context(cafile=layout.ca)
        self._layout = layout
        self._arm = httpx.AsyncClient(base_url=layout.arm_url, verify=trust, trust_env=False)
        self._admin = httpx.AsyncClient(base_url=layout.metadata_url, trust_env=False)
        self._database = database
        self._token = ""

    async def close(self) -> None:
        """Close the connections."""
        await self._arm.aclose()
        await self._admin.aclose()

    async def take_snapshot(self, jobs: Iterable[str]) -> Snapshot:
        """Take a snapshot of the cloud, and then of the attempts of these jobs."""
        at = time.time()
        sets, vms = await self._sets(), await self._vms()
        query = """select id, job_id, number, state, created_at from attempts
                   where job_id = any(%s)"""
        rows = await (await self._database.execute(query, [list(jobs)])).fetchall()
        attempts = (
            SnapshotAttempt(id=r[0], job=r[1], number=r[2], state=r[3], created_at=r[4].timestamp())
            for r in rows
        )
        return Snapshot(at=at, sets=sets, vms=vms, attempts={a.id: a for a in attempts})

    async def evict(self, vm: Vm, *, notice: bool) -> bool:
        """Evict a machine; without notice it is dead on return.

        Returns:
            False when the machine was already being removed.
        """
        body = {"scale_set": vm.scale_set, "instance_id": vm.instance_id, "notice": notice}
        return await self._strike("evict", body)

    async def preempt(self, attempt: str, then: str) -> bool:
        """Preempt one node of the attempt's Azure ML job; ``then`` is how the job goes on.

        Returns:
            False when the job does not run.
        """
        job = f"rk-{attempt.removeprefix('att-')}"
        return await self._strike("azureml/preempt", {"job": job, "nodes": 1, "then": then})

    async def _strike(self, route: str, body: Mapping[str, Any]) -> bool:
        answer = await self._admin.post(f"/_emulator/{route}", json=body, timeout=30)
        if answer.status_code in (httpx.codes.CONFLICT, httpx.codes.NOT_FOUND):
            return False
        answer.raise_for_status()
        return True

    async def _vms(self) -> list[Vm]:
        answer = await self._admin.get("/_emulator/virtualMachines")
        return [_vm(row) for row in answer.raise_for_status().json()["value"]]

    async def _sets(self) -> list[SnapshotScaleSet]:
        sets = [_scale_set(row) for row in await self._pages(SETS)]
        if Engine.AZUREML in self._layout.engines:
            sets += [_cluster(row) for row in await self._pages(CLUSTERS)]
        return sets

    async def _pages(self, next_page: str | None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        while next_page:
            answer = await self._arm.get(next_page, headers=await self._headers())
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                self._token = ""
                continue
            page = answer.raise_for_status().json()
            rows += page["value"]
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
    members = {k: row[k] for k in ("scale_set", "instance_id", "vm_id", "state", "pid")}
    return Vm(**members, folder=Path(row["folder"]))


def _scale_set(row: Mapping[str, Any]) -> SnapshotScaleSet:
    return _from_row(row, Engine.SCALE_SET, row["properties"]["timeCreated"])


def _cluster(row: Mapping[str, Any]) -> SnapshotScaleSet:
    return _from_row(row, Engine.AZUREML, row["properties"]["createdOn"])


def _from_row(row: Mapping[str, Any], engine: Engine, at: str) -> SnapshotScaleSet:
    tags = row.get("tags") or {}
    return SnapshotScaleSet(
        name=row["name"],
        job=tags.get(JOB_TAG, ""),
        attempt=tags.get(ATTEMPT_TAG, ""),
        state=row["properties"]["provisioningState"],
        created_at=datetime.fromisoformat(at).timestamp(),
        engine=engine,
    )
