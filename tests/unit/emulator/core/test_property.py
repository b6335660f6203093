"""Whatever is asked of the emulator, in whatever order, however often it restarts in between."""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from emulator.core.state import InstanceRow
from tests.clock import Clock
from tests.emulated.inside import HERE, SETS, Inside, emulator_inside
from tests.emulated.process import GROUP, scale_set

CORES = 96
QUOTA = 5 * CORES
SIZE = "Standard_ND96amsr_A100_v4"
USAGES = f"{HERE}/providers/Microsoft.Compute/locations/eastus/usages"
NAMES = ("a", "b")
ORDERS = ("start", "restart", "deallocate", "powerOff")
OVER = ("Succeeded", "Failed", "Canceled")
LONG = 150.0  # seconds in which everything that was begun ends

name, count, which = st.sampled_from(NAMES), st.integers(0, 4), st.integers(0, 3)
STEP = st.one_of(
    st.tuples(st.just("put"), name, count),
    st.tuples(st.just("put"), name, count),
    st.tuples(st.just("scale"), name, count),
    st.tuples(st.just("delete"), name, which),
    st.tuples(st.just("delete_instances"), name, which),
    st.tuples(st.just("notice"), name, which),
    st.tuples(st.just("acknowledge"), name, which),
    st.tuples(st.just("strike"), name, which),
    st.tuples(st.just("restore"), name, which),
    st.tuples(st.just("order"), name, st.integers(0, 11)),
    st.tuples(st.just("delete_fails"), name, which),
    st.tuples(st.just("room"), name, st.integers(-1, 4)),
    st.tuples(st.just("delete_group"), name, which),
    st.tuples(st.just("make_group"), name, which),
    st.tuples(st.just("wait"), name, st.sampled_from([0.5, 2.0, 7.0, 31.0])),
    st.tuples(st.just("wait"), name, st.sampled_from([0.5, 2.0, 7.0, 31.0])),
    st.tuples(st.just("restart"), name, which),
)


@dataclass
class World:
    """The emulator, and what is remembered of it from outside."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    operations: dict[str, str] = field(default_factory=dict)  # address -> last status
    seen: dict[str, set[str]] = field(default_factory=dict)  # ids that a set's VMs ever had
    living: dict[str, set[str]] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)  # vmId -> the VM
    inside: Inside = field(init=False)

    async def open(self) -> None:
        """Start it over the folder."""
        emulator = emulator_inside(
            self.folder, self.clock, create_seconds=6, delete_seconds=3, spot_quota=QUOTA
        )
        self.inside = await self.stack.enter_async_context(emulator)

    async def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """One request; whatever it is, it is answered in Azure's way."""
        response = await self.inside.arm.request(method, path, json=body)
        assert response.status_code < 500, response.text
        if response.status_code >= 400:
            assert set(response.json()["error"]) >= {"code", "message"}
        for header in ("azure-asyncoperation", "location"):
            if address := response.headers.get(header):
                self.operations.setdefault(address, "InProgress")
        return response

    async def apply(self, kind: str, name: str, number: float) -> None:
        """One step."""
        path = f"{SETS}/{name}"
        if kind == "wait":
            await self.inside.pass_time(number, step=0.5)
        elif kind == "restart":
            await self.restart()
        elif kind == "room":
            room = {
                "region": "eastus",
                "vm_size": SIZE,
                "available": None if number < 0 else number,
            }
            await self.ask("POST", "/_emulator/capacity", room)
        elif kind == "delete_fails":
            fault = {"kind": "delete_fails", "path": f"/{name}$", "count": 1}
            await self.ask("POST", "/_emulator/faults", fault)
        elif kind == "restore":
            order = {"scale_set": name, "count": int(number) + 1}
            await self.ask("POST", "/_emulator/restore", order)
        elif kind == "delete_group":
            await self.ask("DELETE", f"{HERE}/resourceGroups/{GROUP}")
        elif kind == "make_group":
            await self.ask("PUT", f"{HERE}/resourceGroups/{GROUP}", {"location": "eastus"})
        elif kind == "delete":
            await self.ask("DELETE", path)
        elif kind in ("put", "scale"):
            await self.put(path, kind, int(number))
        else:
            await self.order(kind, path, int(number))

    async def put(self, path: str, kind: str, number: int) -> None:
        """Create, update or scale."""
        body = scale_set(number)
        if path[-1] == "b":
            profile = body["properties"]["virtualMachineProfile"]
            profile |= {"evictionPolicy": "Deallocate", "storageProfile": {}}
        await self.ask(
            "PUT", path, body if kind == "put" else {k: body[k] for k in ("location", "sku")}
        )

    async def order(self, kind: str, path: str, number: int) -> None:
        """Something for one VM of the set, if it has that many."""
        listed = await self.ask("GET", f"{path}/virtualMachines")
        if not (rows := listed.json().get("value", [])):
            return
        vm, name = rows[number % len(rows)]["instanceId"], path.rpartition("/")[2]
        if kind == "delete_instances":
            await self.ask("POST", f"{path}/delete", {"instanceIds": [vm]})
        elif kind == "order":
            where = f"{path}/virtualMachines/{vm}" if number % 2 else path
            await self.ask("POST", f"{where}/{ORDERS[number // 2 % len(ORDERS)]}")
        elif kind == "notice":
            await self.ask("POST", f"{path}/virtualMachines/{vm}/simulateEviction")
        elif kind == "strike":
            order = {"scale_set": name, "instance_id": vm, "notice": False}
            await self.ask("POST", "/_emulator/evict", order)
        else:
            await self.acknowledge(self.instance(name, vm))

    def instance(self, name: str, vm: str) -> InstanceRow:
        """One VM, as the emulator keeps it."""
        sets = self.inside.fabric.state.scale_sets.values()
        return next(s.instances[vm] for s in sets if s.name == name)

    async def acknowledge(self, instance: InstanceRow) -> None:
        """Let the VM agree to all that is announced to it."""
        path, headers = f"/vm/{instance.token}/metadata/scheduledevents", {"Metadata": "true"}
        request: dict[str, Any] = {"url": path, "headers": headers}
        request["params"] = {"api-version": "2020-07-01"}
        document = (await self.inside.metadata.get(**request)).json()
        approval = {"StartRequests": [{"EventId": e["EventId"]} for e in document["Events"]]}
        if approval["StartRequests"]:
            (await self.inside.metadata.post(**request, json=approval)).raise_for_status()

    async def restart(self) -> None:
        """End and start again: everything is kept, and answered as before."""
        state, before = self.inside.fabric.state, await self.everything()
        rows, before_all = state.rows(), state.globals
        await self.stack.aclose()
        await self.open()
        now = self.inside.fabric.state
        rows[now.globals.row_path] = replace(before_all, time=now.globals.time)
        assert now.rows() == rows
        assert await self.everything() == before

    async def everything(self) -> list[object]:
        """All that can be asked, and what is kept."""
        paths = [f"{SETS}/{n}{tail}" for n in NAMES for tail in ("", "/instanceView")]
        paths += [f"{SETS}/{n}/virtualMachines?$expand=instanceView" for n in NAMES]
        paths += [f"{HERE}/resourceGroups", USAGES, *self.operations, "/_emulator/virtualMachines"]
        query = "api-version=2026-04-01"
        full = [p if "api-version" in p else f"{p}{'&' if '?' in p else '?'}{query}" for p in paths]
        answers = [await self.inside.follow(path) for path in full]
        return [(a.status_code, a.text) for a in answers]

    async def check(self) -> None:
        """Check the invariants that always hold."""
        self.check_ids()
        await self.check_quota()
        await self.check_operations()
        self.check_states()
        self.check_agenda()
        assert all(
            remaining >= 0 for remaining in self.inside.fabric.state.globals.capacity.values()
        )

    def check_ids(self) -> None:
        """No id is used again, and no machine is two."""
        for row in self.inside.fabric.state.scale_sets.values():
            now = set(row.instances)
            fresh = now - self.living.get(row.unique_id, set())
            assert not fresh & self.seen.setdefault(row.unique_id, set()), "an id was used again"
            self.seen[row.unique_id] |= now
            self.living[row.unique_id] = now
            for vm in row.instances.values():
                name = f"{row.unique_id}/{vm.instance_id}"
                assert self.machines.setdefault(vm.vm_id, name) == name

    async def check_quota(self) -> None:
        """As many cores are used as the VMs have that are listed, and never too many."""
        rows = (await self.ask("GET", USAGES)).json()["value"]
        spot = next(row for row in rows if row["name"]["value"] == "lowPriorityCores")
        listed = len(list(self.inside.fabric.instances()))
        assert spot["currentValue"] == listed * CORES
        assert listed * CORES <= QUOTA

    async def check_operations(self) -> None:
        """Check that finished operations keep their status."""
        newest = list(self.operations.items())[-6:]
        for address, before in newest:
            response = await self.inside.follow(address)
            if "monitor=true" in address or "operationresults" in address:
                status = "InProgress" if response.status_code == 202 else str(response.status_code)
            else:
                operation = response.json()
                status = operation["status"]
                assert ("endTime" in operation) == (status in OVER), operation
                assert ("error" in operation) == (status in ("Failed", "Canceled")), operation
            assert before in ("InProgress", status), f"{address} was {before}, is {status}"
            self.operations[address] = status if status != "200" else before

    def check_states(self) -> None:
        """Something is in progress exactly while an operation is."""
        fabric = self.inside.fabric
        for row in fabric.state.scale_sets.values():
            group = row.key.partition("/providers/")[0]
            operations = [o for o in fabric.under_way() if o.target in (row.key, group)]
            kinds = {o.kind for o in operations if not o.alone}
            assert (row.provisioning_state != "Failed") or row.error
            if row.provisioning_state in ("Succeeded", "Failed"):
                assert not kinds, f"{row.name} is {row.provisioning_state} during {kinds}"
            else:
                assert kinds, f"{row.name} is {row.provisioning_state}, and nothing is going on"
            if row.provisioning_state == "Deleting":
                assert kinds & {"delete", "delete_group"}

    def check_agenda(self) -> None:
        """Check that the fabric's agenda and indexes match its VMs and operations."""
        fabric, instances = self.inside.fabric, [i for _, i in self.inside.fabric.instances()]
        assert [i for _, i in fabric._agenda.doomed()] == [i for i in instances if i.doom]
        assert all(fabric.by_token(i.token) for i in instances)
        open_ones = {o.id for o in fabric.state.operations.values() if o.status == "InProgress"}
        assert {o.id for o in fabric.under_way()} == open_ones

    async def rest(self) -> None:
        """When everything has ended, there are as many VMs as there should be."""
        await self.inside.pass_time(LONG, step=3)
        assert not list(self.inside.fabric.under_way())
        for row in self.inside.fabric.state.scale_sets.values():
            if row.provisioning_state == "Succeeded":
                assert row.capacity == len(row.instances), row.name
            for vm in row.instances.values():
                assert (vm.phase != "creating", vm.doom, vm.busy) == (True, "", ""), vm


async def live(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        await world.open()
        async with world.stack:
            for step in (("put", "a", 2), ("put", "b", 2), ("wait", "a", 7.0), *steps):
                await world.apply(*step)
                await world.check()
            await world.rest()
            await world.check()
            await world.restart()


@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(STEP, min_size=8, max_size=24))
def test_quota_ids_states_and_memory_hold_whatever_is_asked(steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(live(steps))
