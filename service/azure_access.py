"""How the service reaches Azure, by its settings: endpoint, identity, whom to trust. For main."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential

from service.cloud.azure import AzureCloud
from service.cloud.azure_template import AzureSettings
from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudProvider
from service.settings import Settings


def cloud(settings: Settings, now: Callable[[], datetime]) -> CloudProvider:
    """Azure, or the fake one."""
    if settings.cloud == "fake":
        return FakeCloud(now=now)
    secret = settings.azure_client_secret.get_secret_value()
    if secret:
        credential: Any = ClientSecretCredential(
            settings.azure_tenant_id,
            settings.azure_client_id,
            secret,
            **_authority(settings),
        )
    else:
        credential = DefaultAzureCredential()
    return AzureCloud(
        AzureSettings(
            subscription_id=settings.azure_subscription_id,
            resource_group=settings.azure_resource_group,
            owner=settings.deployment,
            subnet_id=settings.azure_subnet_id,
            ssh_public_key=settings.azure_ssh_public_key,
            image=settings.azure_image,
            identity_id=settings.azure_identity_id,
        ),
        credential,
        base_url=settings.azure_endpoint,
        ca_path=ca(settings),
    )


def _authority(settings: Settings) -> dict[str, Any]:
    """A private endpoint (the emulator) is its own login authority."""
    if settings.azure_ca is None:
        return {}
    return {
        "authority": settings.azure_endpoint,
        "disable_instance_discovery": True,
        "connection_verify": ca(settings),
    }


def ca(settings: Settings) -> str:
    """The file of a private endpoint's authority; "" where the system's are trusted."""
    return str(settings.azure_ca) if settings.azure_ca else ""
