"""Parts of the local stack: command lines, settings and readiness checks."""

import base64
import hashlib
import json
import os
import shutil
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from contract.choices import Engine
from rekindle.local import postgres
from rekindle.local.parts import MAX_RESTARTS, StackPart
from rekindle.local.setup import ROOT, tools_path
from rekindle.local.state_folder import StackPorts, StackStartError, StateFolder

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"  # the emulator's
TENANT = "11111111-1111-1111-1111-111111111111"  # the emulator's
CLIENT = "00000000-0000-4000-8000-000000000003"  # the emulator accepts any
RESOURCE_GROUP = "rekindle"
REGION = "eastus"
SUBNET = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
    "/providers/Microsoft.Network/virtualNetworks/rekindle-{region}/subnets/nodes"
)
SSH_KEY = "ssh-ed25519 AAAA nobody"  # required by Azure; emulated VMs have no sshd
WORKSPACE = "rekindle"  # Azure ML workspace, if its engine is used
VM_SIZE = "Standard_ND96amsr_A100_v4"
BLOB_ACCOUNT = "rekindle"
REGION_ACCOUNT = f"rekindle{REGION}"  # holds copies of the base models
ENGINE_HELP = "engine that runs the machines; default: scale_set"
TRAINER_IMAGE = "rekindle-trainer:local"
TINY_MODEL = "rekindle/tiny-llama"
REAL_MODEL = "rekindle/smollm2-135m"
BASE_MODELS = {  # name: the program that creates its folder
    TINY_MODEL: "trainer.tiny",
    REAL_MODEL: "trainer.smollm2",
}
MODELS = ROOT / ".rekindle" / "models"  # shared by all stacks of the checkout
# Measured on this computer; all stacks share it. See trainer.process.cpu_speed.
CPU_SPEED = ROOT / ".rekindle" / "cpu_flops_fp32"


@dataclass(frozen=True)
class StackLayout:
    """Configuration of one stack: state folder, ports, models and engines."""

    state: StateFolder
    ports: StackPorts
    restarts: int = MAX_RESTARTS  # maximum restarts of one part within a minute
    spot_capacity: Path | None = None  # file with Spot capacity over time: docs/emulator.md
    create_seconds: float | None = None  # seconds to create machines; None: the emulator's default
    models: tuple[str, ...] = (TINY_MODEL,)  # base models to stage
    engines: tuple[Engine, ...] = (Engine.SCALE_SET,)  # one offering for each

    @property
    def api_url(self) -> str:
        """Address of the service."""
        return f"http://127.0.0.1:{self.ports.api}"

    @property
    def arm_url(self) -> str:
        """Address of the emulated Azure Resource Manager."""
        return f"https://localhost:{self.ports.arm}"

    @property
    def blob_url(self) -> str:
        """Address of the stack's storage account in Azurite."""
        return f"http://127.0.0.1:{self.ports.blob}/{BLOB_ACCOUNT}"

    @property
    def metadata_url(self) -> str:
        """Address of the emulated instance metadata service."""
        return f"http://127.0.0.1:{self.ports.metadata}"

    @property
    def ca(self) -> Path:
        """Certificate authority of the emulator."""
        return self.state / "azure" / "tls" / "ca.pem"

    @property
    def client_secret(self) -> str:
        """Client secret of the emulator's service principal."""
        return self._derive_secret("client secret").hex()

    @property
    def storage(self) -> str:
        """Connection string of the main account in Azurite."""
        return self._connection_string(BLOB_ACCOUNT)

    def postgres(self) -> StackPart:
        """Return the database part; durable, as jobs survive a restart of the stack."""
        data = self.state / "postgres"

        async def ready() -> bool:
            return postgres.is_ready(data)

        return StackPart(
            name="postgres",
            argv=postgres.server_command(data, "max_connections=200", "shared_buffers=64MB"),
            ready=ready,
            stop_signal=signal.SIGINT,
            user=postgres.server_user(),
        )

    def azurite(self) -> StackPart:
        """Return the part of Azurite, Microsoft's Blob emulator, with two accounts."""
        main = ROOT / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        node = shutil.which("node", path=tools_path())
        if node is None or not main.exists():
            raise StackStartError("Azurite is not installed: run make setup")
        address = ["--blobHost", "127.0.0.1", "--blobPort", str(self.ports.blob)]
        key = self._account_key
        flags = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        return StackPart(
            name="azurite",
            argv=[node, str(main), "--location", str(self.state / "azurite"), *address, *flags],
            env={"AZURITE_ACCOUNTS": f"{BLOB_ACCOUNT}:{key};{REGION_ACCOUNT}:{key}"},
            ready=_http_check(f"http://127.0.0.1:{self.ports.blob}/"),
        )

    def emulator(self) -> StackPart:
        """Return the part of the Azure emulator."""
        folders = [
            "--state",
            str(self.state / "azure"),
            "--images",
            str(self.state / "images.json"),
        ]
        ports = ["--arm-port", str(self.ports.arm), "--metadata-port", str(self.ports.metadata)]
        options = ["--spot-capacity", str(self.spot_capacity)] if self.spot_capacity else []
        if self.create_seconds is not None:
            options += ["--create-seconds", str(self.create_seconds)]
        return StackPart(
            name="emulator",
            argv=[sys.executable, "-m", "emulator", *folders, *ports, *options, "--proxies"],
            ready=_http_check(f"{self.arm_url}/metadata/endpoints?api-version=2022-09-01", self.ca),
        )

    def service(self) -> StackPart:
        """Return the part of API and reconciler, in one process."""
        return StackPart(
            name="service",
            argv=[sys.executable, "-m", "service.main", "all", "--port", str(self.ports.api)],
            env=self.service_settings(),
            ready=_http_check(f"{self.api_url}/readyz"),
        )

    def service_settings(self) -> Mapping[str, str]:
        """Return the service's settings."""
        speed = {"REKINDLE_CPU_FLOPS": CPU_SPEED.read_text()} if CPU_SPEED.exists() else {}
        return speed | {
            "REKINDLE_DATABASE_URL": postgres.database_url(self.state / "postgres"),
            "REKINDLE_STORAGE": self.storage,
            "REKINDLE_REGION_STORAGE": json.dumps(
                {REGION: self._connection_string(REGION_ACCOUNT)}
            ),
            "REKINDLE_PUBLIC_URL": self.api_url,
            "REKINDLE_SECRET_KEY": self._derive_secret("service").hex(),
            "REKINDLE_DEPLOYMENT": "local",
            "REKINDLE_OPERATOR_PROJECT": "local",
            "REKINDLE_CLOUD": "azure",
            "REKINDLE_AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
            "REKINDLE_AZURE_RESOURCE_GROUP": RESOURCE_GROUP,
            "REKINDLE_AZURE_TENANT_ID": TENANT,
            "REKINDLE_AZURE_CLIENT_ID": CLIENT,
            "REKINDLE_AZURE_CLIENT_SECRET": self.client_secret,
            "REKINDLE_AZURE_ENDPOINT": self.arm_url,
            "REKINDLE_AZURE_CA": str(self.ca),
            "REKINDLE_AZURE_SUBNET_ID": SUBNET,
            "REKINDLE_AZURE_SSH_PUBLIC_KEY": SSH_KEY,
            "REKINDLE_PRICES_URL": self.arm_url,
            "REKINDLE_OFFERINGS": ",".join(map(_offering, self.engines)),
            "REKINDLE_AZUREML_WORKSPACE": WORKSPACE if Engine.AZUREML in self.engines else "",
            "REKINDLE_ACCELERATOR": "cpu",
            "REKINDLE_PROCESSES_PER_NODE": "1",
            "REKINDLE_TRAINER_IMAGE": TRAINER_IMAGE,
            "REKINDLE_RECOVERY_SECONDS": "15",
            "REKINDLE_POLL_SECONDS": "1",
            "REKINDLE_READ_LAG_SECONDS": "2",
            "REKINDLE_DRAIN_SECONDS": "1",
            "REKINDLE_DELETE_SECONDS": "60",  # the emulator: 2, plus the stop of VMs
            "REKINDLE_BUDGET_OUTAGE_SECONDS": "60",  # stopped parts restart at once
        }

    @property
    def images(self) -> Mapping[str, object]:
        """Programs that emulated VMs run instead of container images."""
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        env = {
            "PYTHONPATH": str(ROOT),
            "PATH": programs,  # jobs in Azure ML need python3 and sh
            "REKINDLE_MEMORY_DIR": "memory",  # /dev/shm would be shared by all VMs
        }
        command = [sys.executable, "-m", "trainer.supervisor"]
        return {TRAINER_IMAGE: {"command": command, "env": env}}

    def _connection_string(self, account: str) -> str:
        address = f"http://127.0.0.1:{self.ports.blob}/{account}"
        return (
            f"DefaultEndpointsProtocol=http;AccountName={account};"
            f"AccountKey={self._account_key};BlobEndpoint={address};"
        )

    @property
    def _account_key(self) -> str:
        return base64.b64encode(self._derive_secret("storage account")).decode()

    def _derive_secret(self, purpose: str) -> bytes:
        secret = self.state.read_or_create_secret("secret")
        return hashlib.sha256(f"{secret}/{purpose}".encode()).digest()


def model_folder(model: str) -> Path:
    """Return the folder of a base model's files; it exists once the model is created."""
    return MODELS / model.rpartition("/")[2]


def _offering(engine: Engine) -> str:
    suffix = "" if engine is Engine.SCALE_SET else f":{engine}"
    return f"{VM_SIZE}@{REGION}{suffix}"


def _http_check(url: str, ca: Path | None = None) -> Callable[[], Awaitable[bool]]:
    """Return a check that the address answers without a server error."""

    async def ready() -> bool:
        context = _tls_context(ca)
        if context is None:
            return False
        async with httpx.AsyncClient(verify=context, timeout=2, trust_env=False) as client:
            try:
                return (await client.get(url)).status_code < 500
            except httpx.TransportError:
                return False

    return ready


def _tls_context(ca: Path | None) -> ssl.SSLContext | None:
    """Return the TLS context for a certificate authority; None until its file exists."""
    if ca is not None and not ca.exists():
        return None
    return ssl.create_default_context(cafile=ca)
