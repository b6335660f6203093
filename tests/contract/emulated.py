"""The real adapters with the emulator, and sign-in to Blob Storage with its tokens."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from azure.identity.aio import ClientSecretCredential

from service.cloud.azure.adapter import AzureCloud
from service.cloud.azure.template import AzureSettings
from service.storage.azure import ServiceIdentity
from tests.azurite import Azurite
from tests.emulated.process import GROUP, SUBSCRIPTION, TENANT, Emulator

IMAGE = "rekindle/node:test"  # copies its node config to its disk, then sleeps
_NODE = 'cp "$REKINDLE_NODE_CONFIG" "$REKINDLE_WORK_DIR/seen.json" && exec sleep 600'


@contextmanager
def server(folder: Path) -> Iterator[Emulator]:
    """Run an emulator with short delays for scale sets and two rows per page."""
    images = folder / "images.json"
    images.write_text(json.dumps({IMAGE: {"command": ["sh", "-c", _NODE]}}))
    emulator = Emulator(
        folder,
        *("--images", str(images), "--page-size", "2", "--spot-quota", "100000"),
        *("--create-seconds", "0.8", "--delete-seconds", "0.5"),
    )
    try:
        emulator.make_group()
        yield emulator
    finally:
        emulator.destroy()


class Reachable(Protocol):
    """An emulator at any address."""

    @property
    def arm_url(self) -> str:
        """URL of its ARM."""
        ...

    @property
    def ca(self) -> str:
        """File with its CA certificate."""
        ...


def credential(emulator: Reachable, client_id: str = "service") -> ClientSecretCredential:
    """Return a credential of a client at the emulator's Microsoft Entra ID."""
    return ClientSecretCredential(**secret(emulator, client_id))


def secret(emulator: Reachable, client_id: str = "service") -> dict[str, Any]:
    """Return the arguments of a ClientSecretCredential, with asyncio or without."""
    return {
        "tenant_id": TENANT,
        "client_id": client_id,
        "client_secret": "any",
        "authority": emulator.arm_url,
        "disable_instance_discovery": True,
        "connection_verify": emulator.ca,
    }


def sign_in(emulator: Reachable, owner: str) -> AzureCloud:
    """Return the adapter for the deployment ``owner``."""
    settings = AzureSettings(
        subscription_id=SUBSCRIPTION,
        resource_group=GROUP,
        owner=owner,
        subnet_id="/networks/rekindle-{region}/subnets/nodes",
        ssh_public_key="ssh-ed25519 AAAA somebody",
    )
    return AzureCloud(
        settings, credential(emulator), base_url=emulator.arm_url, ca_path=emulator.ca
    )


def blob_sign_in(azure: Emulator, blobs: Azurite) -> ServiceIdentity:
    """Return the sign-in of a client, as the service makes it from its settings."""
    client = credential(azure, "11111111-2222-3333-4444-555555555555")
    return ServiceIdentity(credential=client, now=wall, ca_path=str(blobs.ca))


def wall() -> datetime:
    """Return the real time, which Azurite uses to check tokens."""
    return datetime.fromtimestamp(time.time(), UTC)
