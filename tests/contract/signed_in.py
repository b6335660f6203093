"""Sign-in to Blob Storage with a token of the emulator's Microsoft Entra ID."""

import time
from datetime import UTC, datetime

from service.storage.azure import ServiceIdentity
from tests.azurite import Azurite
from tests.contract.emulated import credential
from tests.emulated.process import Emulator


def sign_in(azure: Emulator, blobs: Azurite) -> ServiceIdentity:
    """Return the sign-in of a client, as the service makes it from its settings."""
    client = credential(azure, "11111111-2222-3333-4444-555555555555")
    return ServiceIdentity(credential=client, now=wall, ca_path=str(blobs.ca))


def wall() -> datetime:
    """Return the real time, which Azurite uses to check tokens."""
    return datetime.fromtimestamp(time.time(), UTC)
