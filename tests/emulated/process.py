"""The emulator as a separate process, and the clients that tests use with it."""

import base64
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

import httpx
from azure.core.exceptions import ResourceNotFoundError
from azure.core.polling import AsyncLROPoller
from azure.identity.aio import ClientSecretCredential
from azure.mgmt.compute.aio import ComputeManagementClient
from azure.mgmt.compute.models import VirtualMachineScaleSet

from tests.waiting import until

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
TENANT = "11111111-1111-1111-1111-111111111111"
GROUP = "rekindle"
VERSION = "?api-version=2026-04-01"
PATIENCE = 60.0  # timeout in seconds, for a busy machine
T = TypeVar("T")
BOOT = """#cloud-config
write_files:
  - path: /etc/rekindle/node.json
    permissions: "0600"
    content: '{"attempt": 1}'
runcmd:
  - [cp, /etc/rekindle/node.json, copied.json]
  - setsid sh -c 'echo $$ > child.pid; exec sleep 1000' &
"""


class Emulator:
    """One emulator with one state folder; stopping it does not stop its VMs."""

    def __init__(self, state: Path, *options: str, console: TextIO | None = None) -> None:
        self.state = state
        self._console = console  # file for its standard error; None: the test's own
        self._options = options
        self._ports = ("0", "0")
        self.start()

    def start(self) -> None:
        """Start it, on the same ports as before."""
        arm, metadata = self._ports
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "emulator", "--state", str(self.state)),
                *("--arm-port", arm, "--metadata-port", metadata, *self._options),
            ],
            stdout=subprocess.PIPE,
            stderr=self._console,
            text=True,
        )
        assert self._process.stdout
        ready_line = self._process.stdout.readline().split()
        assert ready_line[:2] == ["emulator", "ready:"], ready_line
        self.arm_url, self.metadata_url = ready_line[3], ready_line[-1]
        self._ports = (self.arm_url.rsplit(":")[-1], self.metadata_url.rsplit(":")[-1])

    @property
    def ca(self) -> str:
        """File with the CA certificate."""
        return str(self.state / "tls" / "ca.pem")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait until it ends by itself and return its exit code."""
        code = self._process.wait(PATIENCE)
        if self._process.stdout:
            self._process.stdout.close()
        return code

    def http(self) -> httpx.Client:
        """Return an HTTP client of its ARM without a token."""
        trusted = ssl.create_default_context(cafile=self.ca)
        return httpx.Client(base_url=self.arm_url, verify=trusted, trust_env=False)

    def signed_in(self) -> httpx.Client:
        """Return an HTTP client of its ARM with a token."""
        form = {"grant_type": "client_credentials", "client_id": "me", "client_secret": "any"}
        with self.http() as anonymous:
            answer = anonymous.post(f"/{TENANT}/oauth2/v2.0/token", data=form)
        token = answer.raise_for_status().json()["access_token"]
        client = self.http()
        client.headers["Authorization"] = f"Bearer {token}"
        return client

    def make_group(self) -> None:
        """Create the resource group that the tests use."""
        with self.signed_in() as client:
            client.put(group_url(), json={"location": "eastus"}).raise_for_status()

    def admin(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send an order to the emulator's own interface, such as an eviction or a fault."""
        return httpx.post(f"{self.metadata_url}/_emulator/{path}", json=body, timeout=PATIENCE)

    def clear_faults(self) -> None:
        """Remove all planted faults."""
        httpx.delete(f"{self.metadata_url}/_emulator/faults", timeout=PATIENCE).raise_for_status()

    def faults(self) -> list[dict[str, Any]]:
        """Return all planted faults with their number of hits."""
        answer = httpx.get(f"{self.metadata_url}/_emulator/faults", timeout=PATIENCE)
        return list(answer.raise_for_status().json()["value"])

    def virtual_machines(self) -> list[dict[str, Any]]:
        """Return all VMs with state, process and folder."""
        answer = httpx.get(f"{self.metadata_url}/_emulator/virtualMachines")
        return list(answer.raise_for_status().json()["value"])

    def machines(self, name: str) -> list[dict[str, Any]]:
        """Return the VMs of one scale set."""
        return [vm for vm in self.virtual_machines() if vm["scale_set"] == name]

    def destroy(self) -> None:
        """Delete everything, with the VMs, and stop the emulator."""
        with self.signed_in() as client:
            client.delete(group_url())
            wait_for(lambda: client.head(group_url()).status_code == 404)
        self.stop()


@asynccontextmanager
async def compute(emulator: Emulator) -> AsyncIterator[ComputeManagementClient]:
    """Yield the real SDK client, signed in with a client secret over TLS."""
    credential = ClientSecretCredential(
        TENANT,
        "me",
        "any",
        authority=emulator.arm_url,
        disable_instance_discovery=True,
        connection_verify=emulator.ca,
    )
    client = ComputeManagementClient(
        credential,
        SUBSCRIPTION,
        base_url=emulator.arm_url,
        credential_scopes=[f"{emulator.arm_url}/.default"],
        connection_verify=emulator.ca,
        polling_interval=0,
        retry_total=0,
    )
    async with credential, client:
        yield client


async def begin(
    client: ComputeManagementClient, name: str, body: dict[str, Any]
) -> AsyncLROPoller[VirtualMachineScaleSet]:
    """Start the creation of a scale set."""
    sets = client.virtual_machine_scale_sets
    return await sets.begin_create_or_update(GROUP, name, VirtualMachineScaleSet(body))


async def create(client: ComputeManagementClient, name: str, body: dict[str, Any]) -> None:
    """Create a scale set and wait for the end of the operation."""
    await (await begin(client, name, body)).result()


async def remove(client: ComputeManagementClient, name: str) -> None:
    """Delete a scale set and wait until it is not found."""
    await client.virtual_machine_scale_sets.begin_delete(GROUP, name, polling=False)

    async def gone() -> bool:
        try:
            await client.virtual_machine_scale_sets.get(GROUP, name)
        except ResourceNotFoundError:
            return True
        return False

    await until(gone, bool, interval=0.05)


def child(vm: dict[str, Any]) -> int:
    """Return the id of the process that BOOT started."""
    file = Path(vm["folder"]) / "child.pid"
    return int(wait_for(lambda: file.exists() and file.read_text().strip()))


def group_url() -> str:
    """Return the path of the tests' resource group."""
    return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}{VERSION}"


def set_url(name: str) -> str:
    """Return the path of a scale set in the tests' resource group."""
    path = f"resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/{name}"
    return f"/subscriptions/{SUBSCRIPTION}/{path}{VERSION}"


def scale_set(count: int, cloud_init: str = "#cloud-config\n", **profile: object) -> dict[str, Any]:
    """Return the body of a Spot scale set as Rekindle creates it."""
    return {
        "location": "eastus",
        "tags": {"rekindle-owner": "test"},
        "sku": {"name": "Standard_ND96amsr_A100_v4", "tier": "Standard", "capacity": count},
        "properties": {
            "orchestrationMode": "Uniform",
            "singlePlacementGroup": True,
            "overprovision": False,
            "upgradePolicy": {"mode": "Manual"},
            "virtualMachineProfile": {
                "priority": "Spot",
                "evictionPolicy": "Delete",
                "billingProfile": {"maxPrice": -1},
                "osProfile": {
                    "computerNamePrefix": "rk",
                    "adminUsername": "rekindle",
                    "adminPassword": "Not shown 1",
                    "customData": base64.b64encode(cloud_init.encode()).decode(),
                },
                "storageProfile": {"osDisk": {"diffDiskSettings": {"option": "Local"}}},
            }
            | profile,
        },
    }


def wait_for(condition: Callable[[], T], patience: float = PATIENCE) -> T:
    """Poll ``condition`` until its value is true, and return the value."""
    deadline = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        pause(0.02)
    return value


def pause(seconds: float) -> None:
    """Sleep for real, in tests about points in time and not about conditions."""
    threading.Event().wait(seconds)


def descendants(metadata_url: str) -> list[int]:
    """Return the processes of VMs with this metadata service."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"REKINDLE_METADATA_URL={metadata_url}".encode()
            if marked in (entry / "environ").read_bytes() and runs(int(entry.name)):
                pids.append(int(entry.name))
        except OSError:
            continue  # ended, or belongs to another user
    return pids


def runs(pid: int) -> bool:
    """Return whether a process runs and is not a zombie."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
