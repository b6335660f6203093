"""Create the clients for Azure from the settings: endpoint, identity, trusted CA."""

from collections.abc import Callable
from datetime import datetime
from importlib.util import find_spec
from typing import Any

from azure import identity
from azure.identity import aio

from service.cloud.azure.adapter import AzureCloud
from service.cloud.azure.template import AzureSettings
from service.cloud.azureml.adapter import AzureMlCloud, Workspace
from service.cloud.azureml.model_registry import ModelRegistry
from service.cloud.engines import Engines
from service.cloud.fake import FakeCloud, FakeRegistry
from service.cloud.provider import ATTEMPT_TAG, OWNER_TAG, CloudProvider
from service.pricing.azure.arm import Arm
from service.pricing.azure.bills import AzureBills
from service.pricing.azure.market import AzureMarket
from service.pricing.bills import Bills, FakeBills
from service.pricing.fake_market import FakeMarket
from service.pricing.market import Market
from service.settings import Settings
from service.storage.azure import AzureBlobStore, ServiceIdentity
from service.storage.store import BlobStore, is_account_url
from service.trackers.mlflow import Mlflow
from service.trackers.tensorboard import TensorBoard
from service.trackers.tracker import Tracker
from service.trackers.wandb import Wandb
from service.trackers.workspace import EntraSignIn


def cloud(settings: Settings, now: Callable[[], datetime]) -> CloudProvider:
    """Return Azure, or the fake cloud."""
    if settings.cloud == "fake":
        return FakeCloud(now=now)
    sets = _scale_sets(settings)
    if not settings.azureml_workspace:
        return sets
    # Even without offerings of Azure ML: earlier clusters must be seen to be gone.
    return Engines(scale_sets=sets, azureml=_clusters(settings))


def models(settings: Settings) -> ModelRegistry | None:
    """Return the workspace's registry; None where there is no workspace."""
    if not settings.azureml_workspace:
        return None
    return FakeRegistry() if settings.cloud == "fake" else _clusters(settings)


def trackers(settings: Settings, store: BlobStore) -> dict[str, Tracker]:
    """Return the deployment's experiment trackers, by the type that a request names."""
    by_type: dict[str, Tracker] = {"tensorboard": TensorBoard(store=store)}
    if uri := settings.mlflow_tracking_uri.get_secret_value():
        by_type["mlflow"] = _mlflow(settings, uri)
    key = settings.wandb_api_key.get_secret_value()
    if key and find_spec("wandb"):
        by_type["wandb"] = Wandb(key=key, environment=settings.wandb_environment)
    return by_type


def _mlflow(settings: Settings, uri: str) -> Mlflow:
    if not settings.tracks_in_workspace:
        return Mlflow.at(uri, settings.mlflow_tracking_token.get_secret_value())
    scope = f"{settings.azure_endpoint}/.default"
    return Mlflow.of_workspace(uri, EntraSignIn(credential=_credential(settings), scope=scope))


def _clusters(settings: Settings) -> AzureMlCloud:
    group = settings.azureml_resource_group or settings.azure_resource_group
    return AzureMlCloud(
        Workspace(
            subscription_id=settings.azure_subscription_id,
            resource_group=group,
            name=settings.azureml_workspace,
            owner=settings.deployment,
            identity_id=settings.azure_identity_id,
            subnet_id=settings.azureml_subnet_id,
            clusters={o: o.cluster for o in settings.offerings if o.cluster},
        ),
        _credential(settings, blocking=True),
        base_url=settings.azure_endpoint if settings.emulated else "",
        ca_path=ca(settings),
    )


def _scale_sets(settings: Settings) -> AzureCloud:
    return AzureCloud(
        AzureSettings(
            subscription_id=settings.azure_subscription_id,
            resource_group=settings.azure_resource_group,
            owner=settings.deployment,
            subnet_id=settings.azure_subnet_id,
            ssh_public_key=settings.azure_ssh_public_key,
            image=settings.azure_image,
            identity_id=settings.azure_identity_id,
            policy=settings.azure_policy,
        ),
        _credential(settings),
        base_url=settings.azure_endpoint,
        ca_path=ca(settings),
    )


def blobs(
    settings: Settings | None, account: str, now: Callable[[], datetime], *, retries: int = 3
) -> AzureBlobStore:
    """Return the account with this URL or connection string. Raises ValueError for neither.

    A URL needs ``settings`` for the identity that signs in.
    """
    if settings is None or not is_account_url(account):
        return AzureBlobStore(account, retries=retries)
    sign_in = ServiceIdentity(credential=_credential(settings), now=now, ca_path=ca(settings))
    return AzureBlobStore(account, sign_in=sign_in, retries=retries)


def market(settings: Settings) -> Market:
    """Return Azure's Spot market; an empty one without Azure."""
    if settings.cloud == "fake":
        return FakeMarket()
    return AzureMarket(_arm(settings), settings.azure_subscription_id)


def bills(settings: Settings) -> Bills:
    """Return Azure's bills, or none."""
    if settings.cloud == "fake":
        return FakeBills(rows=None)
    group = settings.azure_resource_group
    scope = f"/subscriptions/{settings.azure_subscription_id}/resourceGroups/{group}"
    owner = (OWNER_TAG, settings.deployment)
    return AzureBills(_arm(settings), scope, tag=ATTEMPT_TAG, owner=owner)


def _arm(settings: Settings) -> Arm:
    return Arm(_credential(settings), base_url=settings.azure_endpoint, ca_path=ca(settings))


def _credential(settings: Settings, *, blocking: bool = False) -> Any:  # noqa: ANN401 - of any kind
    """Return a credential for one client, which closes it; ``blocking``: no asyncio."""
    secret, kinds = settings.azure_client_secret.get_secret_value(), identity if blocking else aio
    if not secret:
        return kinds.DefaultAzureCredential()
    return kinds.ClientSecretCredential(
        settings.azure_tenant_id, settings.azure_client_id, secret, **_authority(settings)
    )


def _authority(settings: Settings) -> dict[str, Any]:
    """Return the credential's options for a private endpoint, its own login authority."""
    if settings.azure_ca is None:
        return {}
    return {
        "authority": settings.azure_endpoint,
        "disable_instance_discovery": True,
        "connection_verify": ca(settings),
    }


def ca(settings: Settings) -> str:
    """Return the CA file of a private endpoint; "" where the system's CAs are trusted."""
    return str(settings.azure_ca) if settings.azure_ca else ""
