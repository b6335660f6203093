"""Signs in to Blob Storage with a token of the emulator's Microsoft Entra ID."""

import time
from datetime import UTC, datetime

from azure.identity.aio import ClientSecretCredential

from service.storage.azure import SignIn
from tests.azurite import Azurite
from tests.emulator_process import TENANT, Emulator


def sign_in(azure: Emulator, blobs: Azurite) -> SignIn:
    """Return the sign-in of some client, as the service makes it from its settings."""
    credential = ClientSecretCredential(
        TENANT,
        "11111111-2222-3333-4444-555555555555",
        "any secret",
        authority=azure.arm_url,
        disable_instance_discovery=True,
        connection_verify=azure.ca,
    )
    return SignIn(credential=credential, now=wall, ca_path=str(blobs.ca))


def wall() -> datetime:
    """The real time, by which Azurite judges."""
    return datetime.fromtimestamp(time.time(), UTC)
