"""The two workspaces of the contract suite, fake and emulated, and Azure ML's actions in them."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

from azure.identity import ClientSecretCredential

from contract.choices import Engine
from service.cloud.azureml.adapter import AzureMlCloud, Workspace
from service.cloud.fake import FakeCloud
from service.cloud.provider import ATTEMPT_TAG, CloudProvider, ScaleSetNotFound
from service.domain.cloud.fleet import (
    Instance,
    Offering,
    ScaleSet,
    ScaleSetPhase,
    ScaleSetSpec,
    SpotCores,
    scale_set_name,
)
from service.domain.states import CapacityType
from tests.clock import Clock
from tests.contract import emulated
from tests.emulated.azureml import OLD, WORKSPACE, cluster
from tests.emulated.process import GROUP, SUBSCRIPTION, Emulator
from tests.waiting import on, until

IMAGE = "example/node:1"
SPOT = Offering(
    region="eastus",
    vm_size="Standard_NC24ads_A100_v4",
    capacity_type=CapacityType.SPOT,
    engine=Engine.AZUREML,
)
FULL = replace(SPOT, vm_size="Standard_NC48ads_A100_v4")  # accepted, but the allocation fails


@dataclass(frozen=True, kw_only=True)
class Space:
    """A workspace as a cloud, and functions for Azure's own actions in it."""

    cloud: CloudProvider
    neighbour: CloudProvider  # the same workspace for another deployment
    owner: str = ""
    preempt: Callable[[str, str], Awaitable[None]]  # (scale set, node)
    until: Callable[..., Awaitable[ScaleSet]]

    async def made(self, spec: ScaleSetSpec) -> ScaleSet:
        """Create it by repeated calls, as the reconciler does; return it once all nodes run."""

        def is_whole(scale_set: ScaleSet | None) -> bool:
            return (
                scale_set is not None
                and sum(map(_runs, scale_set.instances)) == spec.instance_count
            )

        return await self.until(partial(self.order, spec), is_whole)

    async def order(self, spec: ScaleSetSpec) -> ScaleSet | None:
        """Return the scale set; call create if it does not exist or is incomplete."""
        scale_set = await self.look(spec.name)
        if scale_set is None or scale_set.phase is ScaleSetPhase.INCOMPLETE:
            await self.cloud.create(spec)
        return scale_set

    async def look(self, name: str) -> ScaleSet | None:
        """Return the scale set, or None when it does not exist."""
        try:
            return await self.cloud.get(name)
        except ScaleSetNotFound:
            return None

    async def wait_for_state(
        self, name: str, right: Callable[[ScaleSet | None], bool]
    ) -> ScaleSet | None:
        """Wait until the scale set is ``right``, and return it."""
        return await self.until(partial(self.look, name), right)


def _runs(machine: Instance) -> bool:
    return machine.running


def a_spec(offering: Offering = SPOT, nodes: int = 2) -> ScaleSetSpec:
    """Return the spec of a cluster for an attempt with a unique id."""
    attempt = f"att-{uuid4().hex[:26]}"
    return ScaleSetSpec(
        name=scale_set_name(attempt),
        offering=offering,
        instance_count=nodes,
        cloud_init="",
        node_config="{}",
        image=IMAGE,
        tags={ATTEMPT_TAG: attempt},
    )


async def fake_space(clock: Clock) -> AsyncIterator[Space]:
    """Yield the fake cloud as a workspace."""
    cloud = FakeCloud(now=clock, sold_out_late={FULL})
    cloud.spot_quotas[SPOT.pool] = SpotCores(limit=1000, used=0)

    async def preempt(name: str, node: str) -> None:
        numbers = {i.vm_id: i.instance_id for i in (await cloud.get(name)).instances}
        cloud.evict(name, numbers[node])

    yield Space(
        cloud=cloud,
        neighbour=replace(cloud, owner="neighbour"),
        preempt=preempt,
        until=partial(until, wait=on(clock), interval=5, deadline=600),
    )


@contextmanager
def server(folder: Path) -> Iterator[Emulator]:
    """Run an emulator with a workspace, whose nodes run a sleep until they are killed."""
    python = folder / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o755)
    images = folder / "images.json"
    path = f"{python.parent}:/usr/local/bin:/usr/bin:/bin"
    images.write_text(json.dumps({IMAGE: {"command": ["true"], "env": {"PATH": path}}}))
    emulator = Emulator(
        folder / "azure",
        *("--images", str(images), "--create-seconds", "0.3", "--delete-seconds", "0.3"),
    )
    try:
        emulator.make_group()
        with emulator.signed_in() as client:
            client.put(WORKSPACE, params=OLD, json={"location": "eastus"}).raise_for_status()
        full = {"region": FULL.region, "vm_size": FULL.vm_size, "available": 0}
        emulator.admin("capacity", full).raise_for_status()
        yield emulator
    finally:
        emulator.destroy()


async def emulated_space(emulator: Emulator, *, named: bool = False) -> AsyncIterator[Space]:
    """Yield the real adapter with the real client and the emulator.

    Args:
        emulator: The emulator.
        named: Use existing clusters of a team.
    """
    owner = f"o-{uuid4().hex}"
    clusters = {o: team_cluster(emulator, o) for o in (SPOT, FULL)} if named else {}
    cloud, neighbour = (sign_in(emulator, o, clusters) for o in (owner, "neighbour"))

    async def preempt(name: str, node: str) -> None:
        machines = emulator.virtual_machines()
        (machine,) = (m for m in machines if m["vm_id"].replace("-", "") in node)
        target = {"scale_set": machine["scale_set"], "instance_id": machine["instance_id"]}
        emulator.admin("evict", {**target, "notice": False}).raise_for_status()

    yield Space(
        cloud=cloud,
        neighbour=neighbour,
        owner=owner,
        preempt=preempt,
        until=partial(until, interval=0.05),
    )
    await cloud.close()
    await neighbour.close()


def team_cluster(emulator: Emulator, offering: Offering, most: int = 2) -> str:
    """Create a cluster of another team and return its name."""
    name = f"team-{uuid4().hex[:12]}"
    with emulator.signed_in() as client:
        body = cluster(most, vmSize=offering.vm_size)
        client.put(f"{WORKSPACE}/computes/{name}", params=OLD, json=body).raise_for_status()
    return name


def sign_in(
    emulator: Emulator,
    owner: str,
    clusters: Mapping[Offering, str] = MappingProxyType({}),
    name: str = "ws",
    group: str = GROUP,
) -> AzureMlCloud:
    """Return the real adapter for the deployment ``owner``, in the workspace ``name``."""
    space = Workspace(
        subscription_id=SUBSCRIPTION,
        resource_group=group,
        name=name,
        owner=owner,
        clusters=clusters,
    )
    credential = ClientSecretCredential(**emulated.secret(emulator))
    return AzureMlCloud(space, credential, base_url=emulator.arm_url, ca_path=emulator.ca)
