"""Settings of the service, read once from the environment (`REKINDLE_*`) by the entry points."""

import json
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from contract.choices import Engine
from contract.described import Described
from contract.figures import WORKSPACE
from service.cloud.azure.policy import AzurePolicy
from service.domain.cloud.fleet import Offering
from service.domain.datasets.dataset import DatasetLimits
from service.domain.lifecycle.attempt import AttemptTiming
from service.domain.money.budget import Allowance
from service.domain.money.cost import Egress
from service.domain.queue.admission import ProjectQuota
from service.domain.queue.project_limits import REQUESTS_PER_MINUTE
from service.domain.spot.capacity_traces import SpotPool, spot_pool_of
from service.domain.states import TIME_LIMITS, AttemptState, CapacityType
from service.domain.storage.access_tiers import StorageAccount
from service.storage.store import is_account_url

_SHORTEST_SECRET = 32  # characters


class DatabaseSettings(BaseSettings, Described):
    """Settings of commands that need only the database: migrate, key, budget, quota."""

    model_config = SettingsConfigDict(env_prefix="REKINDLE_", frozen=True, extra="ignore")

    database_url: SecretStr
    """URL of the PostgreSQL database."""
    project_max_jobs: int | None = Field(default=None, ge=0)
    """Jobs that a project without its own quota may run at once; default: no limit."""
    project_max_gpus: int | None = Field(default=None, ge=0)
    """GPUs that a project without its own quota may use at once; default: no limit."""

    @property
    def default_quota(self) -> ProjectQuota:
        """Return the quota of a project without one of its own."""
        return ProjectQuota(max_jobs=self.project_max_jobs, max_gpus=self.project_max_gpus)


class Settings(DatabaseSettings):
    """Every setting of the service; `docs/settings.md` is generated from it."""

    storage: SecretStr
    """URL of the storage account (Microsoft Entra ID), or its connection string for local use."""
    region_storage: Annotated[dict[str, SecretStr], NoDecode] = {}
    """Storage accounts for copies of base models: JSON, region to URL or connection string."""
    storage_region: str = ""
    """Region of the storage account, for its prices; default: that of the first offering."""
    storage_redundancy: Literal["LRS", "ZRS", "GRS", "RAGRS", "GZRS", "RAGZRS"] = "LRS"
    """Redundancy of the storage account; accounts in zones have no archive tier."""
    storage_ingress_gbps: float = Field(default=60.0, gt=0)
    """Upload limit of the account in Gbit/s, shared by the nodes of a job; Azure: 60 or 25."""
    public_url: str
    """HTTPS address at which nodes reach the API."""
    secret_key: SecretStr = Field(min_length=_SHORTEST_SECRET)
    """Secret from which node tokens are derived, at least 32 characters."""
    accepted_secret_key: SecretStr = SecretStr("")
    """Second secret whose node tokens are accepted too, for a rotation."""
    deployment: str = Field(min_length=1)
    """Owner tag of every scale set, unique in the resource group: a sweep deletes unknown ones."""

    operator_project: str = "operators"
    """Project whose keys of the scope `operator` may act in all projects; empty: none."""

    cloud: Literal["azure", "fake"] = "azure"
    """Cloud to use; `fake` needs none, for development."""
    azure_subscription_id: str = ""
    """Azure subscription of the scale sets; required for `azure`."""
    azure_resource_group: str = ""
    """Resource group of the scale sets; required for `azure`."""
    azure_tenant_id: str = ""
    """Tenant of the service principal."""
    azure_client_id: str = ""
    """Client id of the service principal or of the managed identity."""
    azure_client_secret: SecretStr = SecretStr("")
    """Secret of the service principal; default: workload or managed identity."""
    azure_endpoint: str = "https://management.azure.com"
    """Address of Azure Resource Manager; another one for the emulator."""
    azure_ca: Path | None = None
    """CA certificate of a private endpoint, such as the emulator's."""
    azure_subnet_id: str = ""
    """Subnet of the nodes; `{region}` stands for the offering's region. Required for `azure`."""
    azure_identity_id: str = ""
    """User-assigned identity of the nodes, which needs AcrPull on the registry."""
    azure_image: str = "microsoft-dsvm:ubuntu-hpc:2204:latest"
    """VM image of the nodes: `publisher:offer:sku:version`, or the id of a gallery image."""
    azure_ssh_public_key: str = ""
    """SSH public key that Azure requires; Rekindle never logs in. Required for `azure`."""
    azure_policy: Annotated[AzurePolicy, NoDecode] = AzurePolicy()
    """Tags, zones and security of every scale set: JSON, see Governed subscriptions."""
    azureml_workspace: str = ""
    """Azure ML workspace of offerings that end in `:azureml`, and of `register_model`."""
    azureml_resource_group: str = ""
    """Resource group of the workspace; default: `REKINDLE_AZURE_RESOURCE_GROUP`."""
    azureml_subnet_id: str = ""
    """Subnet of Azure ML clusters; default: Azure ML's own network."""

    wandb_api_key: SecretStr = SecretStr("")
    """API key of Weights & Biases; empty: `integrations` of type `wandb` are refused."""
    mlflow_tracking_uri: SecretStr = SecretStr("")
    """MLflow server, with `USER:PASSWORD@` if needed, or `azureml://...`; empty: refused."""
    mlflow_tracking_token: SecretStr = SecretStr("")
    """Bearer token of the MLflow server."""

    azure_limits_times: float = Field(default=1.0, gt=0)
    """Factor on Azure's published request limits, where Azure has raised yours."""

    prices_url: str = "https://prices.azure.com"
    """Address of Azure's Retail Prices API."""
    offerings: Annotated[tuple[Offering, ...], NoDecode]
    """Offerings: `SIZE@REGION[:on_demand][:azureml[=CLUSTER]]`, separated by commas."""
    hazard_per_hour: float = 0.05
    """Evictions of one node per hour in plans, where Azure publishes no rate."""
    egress_per_gib: float = Field(default=0.02, ge=0)
    """US dollars for a GiB that leaves its region, for choices of region."""
    recovery_seconds: float = Field(default=600.0, gt=0)
    """Seconds from an eviction to the next training step, for forecasts."""
    accelerator: Literal["cuda", "cpu"] = "cuda"
    """Device of the trainers; `cpu` for development."""
    processes_per_node: int | None = None
    """Trainer processes of a node; default: one for each GPU."""
    cpu_flops: float = 5e9
    """fp32 FLOP/s of a core in plans; `python -m trainer.process.cpu_speed` measures it."""
    trainer_image: str = "rekindle-trainer:latest"
    """Trainer image of new attempts; pin it by digest."""

    requests_per_minute: int = Field(default=REQUESTS_PER_MINUTE, ge=1)
    """Requests a minute of one API key to one API process, before 429."""
    file_max_bytes: int = Field(default=DatasetLimits.max_bytes, ge=1)
    """Bytes of a file in one request (`POST /v1/files`)."""
    upload_max_bytes: int = Field(default=DatasetLimits.max_upload_bytes, ge=1)
    """Bytes of a file in parts (`POST /v1/uploads`)."""
    file_max_line_bytes: int = Field(default=DatasetLimits.max_line_bytes, ge=1)
    """Bytes of one row; a row is in memory while it is checked."""
    file_max_examples: int = Field(default=DatasetLimits.max_examples, ge=1)
    """Rows of one file."""

    poll_seconds: float = 10.0
    """Seconds between two lists of all scale sets."""
    provisioning_seconds: float = Field(
        default=TIME_LIMITS[AttemptState.PROVISIONING][0].total_seconds(), gt=0, le=3600
    )
    """Seconds that Azure may take to provide machines, before another offering is tried."""
    read_lag_seconds: float = 60.0
    """Seconds until Azure Resource Manager lists a new resource."""
    silence_seconds: float = 300.0
    """Dead-node timeout: seconds without heartbeat or commit."""
    settle_seconds: float = 60.0
    """Seconds for nodes to stop."""
    save_seconds: float = 900.0
    """Seconds for nodes to save, upload and stop."""
    delete_seconds: float = 900.0
    """Seconds that 99 % of deletions take; budgets reserve money for them."""
    outage_seconds: float = 1800.0
    """Seconds for which a node trains without contact to the service."""
    budget_outage_seconds: float | None = Field(default=None, ge=0)
    """Seconds of an outage that budgets reserve money for; default: `REKINDLE_OUTAGE_SECONDS`."""
    grant_hours: float | None = Field(default=None, gt=0, le=144)
    """Hours of a node's SAS URLs; default: 24 with an account key, else 1 or two outages."""
    drain_seconds: float = 10.0
    """Seconds for requests and sweeps in progress at shutdown."""
    event_days: int = Field(default=400, ge=1)
    """Days that events are kept after their job has ended."""
    metric_days: int = Field(default=400, ge=1)
    """Days that metrics and result files are kept after their job has ended."""

    @property
    def reserved_outage(self) -> float:
        """Seconds of an outage of the service that budgets reserve money for."""
        reserved = self.budget_outage_seconds
        return self.outage_seconds if reserved is None else reserved

    @property
    def grant_lifetime(self) -> timedelta:
        """Return how long nodes' SAS URLs are valid; they are renewed at half of it.

        Without an account key nothing revokes the URL of one attempt, so it lasts an hour. The
        remaining half outlasts an outage of this service.
        """
        if self.grant_hours is not None:
            return timedelta(hours=self.grant_hours)
        if is_account_url(self.storage.get_secret_value()):
            return max(timedelta(hours=1), timedelta(seconds=2 * self.outage_seconds))
        return timedelta(days=1)

    @property
    def allowance(self) -> Allowance:
        """Return how long stopping machines may cost money: reserved in every budget."""
        return Allowance(
            save=timedelta(seconds=self.save_seconds),
            delete=timedelta(seconds=self.delete_seconds),
            outage=timedelta(seconds=self.reserved_outage),
            silence=timedelta(seconds=self.outage_seconds),
            detection=timedelta(seconds=6 * self.poll_seconds + self.read_lag_seconds),
        )

    @property
    def pace(self) -> AttemptTiming:
        """Return the intervals and time limits of attempts."""
        return AttemptTiming(
            poll=timedelta(seconds=self.poll_seconds),
            read_lag=timedelta(seconds=self.read_lag_seconds),
            silence=timedelta(seconds=self.silence_seconds),
            settle=timedelta(seconds=self.settle_seconds),
            save=timedelta(seconds=self.save_seconds),
            provisioning=timedelta(seconds=self.provisioning_seconds),
        )

    @property
    def emulated(self) -> bool:
        """Return whether machines are emulated: addresses of Azure Resource Manager begin so."""
        host = urlsplit(self.azure_endpoint).hostname or ""
        return self.cloud == "fake" or not host.startswith("management.")

    @property
    def has_azureml(self) -> bool:
        """Return whether jobs may go to the Azure ML workspace."""
        return any(o.engine is Engine.AZUREML for o in self.offerings)

    @property
    def tracks_in_workspace(self) -> bool:
        """Return whether the MLflow server is an Azure ML workspace's, which gets every job."""
        return self.mlflow_tracking_uri.get_secret_value().startswith(WORKSPACE)

    @property
    def wandb_environment(self) -> dict[str, str]:
        """Return the environment of wandb's processes: none of our secrets."""
        passed = ("PATH", "PYTHONPATH", "SSL_CERT_FILE", "HTTPS_PROXY", "NO_PROXY")
        wandb = [name for name in os.environ if name.startswith("WANDB_")]
        return {name: os.environ[name] for name in (*passed, *wandb) if name in os.environ}

    @property
    def egress(self) -> Egress:
        """Return the cost of a checkpoint on its way to another region."""
        return Egress(home=self.account.region, per_gib=self.egress_per_gib)

    @property
    def account(self) -> StorageAccount:
        """Return the region and redundancy of the main storage account."""
        region = self.storage_region or self.offerings[0].region
        return StorageAccount(region=region, redundancy=self.storage_redundancy)

    @property
    def core_pools(self) -> tuple[str, ...]:
        """Return the pools of Spot cores: regions, and engines that have their own."""
        spot = {o.pool for o in self.offerings if o.capacity_type is CapacityType.SPOT}
        return tuple(sorted(spot))

    @property
    def spot_pools(self) -> tuple[SpotPool, ...]:
        """Return the Spot machine types by region."""
        spot = (o for o in self.offerings if o.capacity_type is CapacityType.SPOT)
        return tuple(dict.fromkeys(map(spot_pool_of, spot)))

    @field_validator("offerings", mode="before")
    @classmethod
    def parse_offerings(cls, value: object) -> object:
        """ "SIZE@REGION[:on_demand][:azureml[=CLUSTER]],..." -> offerings."""
        if not isinstance(value, str):
            return value
        if not (parts := [part.strip() for part in value.split(",") if part.strip()]):
            raise ValueError("it is empty: name at least one, SIZE@REGION")
        offerings = tuple(map(_offering, parts))
        for offering in offerings:
            if len({other.cluster for other in offerings if other == offering}) > 1:
                raise ValueError(f"{offering} has several clusters: name one cluster, or none")
        return offerings

    @field_validator("region_storage", mode="before")
    @classmethod
    def parse_region_storage(cls, value: object) -> object:
        """'{"REGION": "URL OR CONNECTION STRING"}' -> accounts."""
        try:
            return json.loads(value or "{}") if isinstance(value, str) else value
        except ValueError:
            raise ValueError(
                'write it as JSON: {"REGION": "https://ACCOUNT.blob.core.windows.net"}'
            ) from None

    @field_validator("azure_policy", mode="before")
    @classmethod
    def parse_policy(cls, value: object) -> object:
        """Read the JSON object, and name the member that is wrong."""
        return AzurePolicy.parse(value) if isinstance(value, str) else value

    @field_validator("azure_ca", mode="before")
    @classmethod
    def empty_is_none(cls, value: object) -> object:
        """Treat an empty variable as one that is not set."""
        return value or None

    @field_validator("accepted_secret_key")
    @classmethod
    def require_long_secret(cls, value: SecretStr) -> SecretStr:
        """Refuse a short secret; empty means none."""
        if 0 < len(value) < _SHORTEST_SECRET:
            raise ValueError(f"it is shorter than {_SHORTEST_SECRET} characters; empty: none")
        return value

    @model_validator(mode="after")
    def require_complete(self) -> Self:
        """Refuse an incomplete configuration."""
        names = ("subscription_id", "resource_group", "subnet_id", "ssh_public_key")
        missing = [n for n in names if not getattr(self, f"azure_{n}")]
        if self.cloud == "azure" and missing:
            variables = ", ".join(f"REKINDLE_AZURE_{n.upper()}" for n in missing)
            raise ValueError(f"REKINDLE_CLOUD=azure needs {variables}")
        if self.has_azureml and not self.azureml_workspace and self.cloud == "azure":
            raise ValueError(
                "offerings that end in :azureml need REKINDLE_AZUREML_WORKSPACE, its name"
            )
        return self


def _offering(text: str) -> Offering:
    size, at, location = text.partition("@")
    region, *suffixes = location.split(":")
    if not (size and at and region):
        raise ValueError(f"{text!r} is no offering: write SIZE@REGION or SIZE@REGION:on_demand")
    types = [suffix for suffix in suffixes if suffix in list(CapacityType)]
    engines = [suffix for suffix in suffixes if suffix in list(Engine)]
    clusters = [suffix for suffix in suffixes if re.fullmatch(r"azureml=[A-Za-z0-9-]+", suffix)]
    engines += [Engine.AZUREML for _ in clusters]
    if len(types) > 1 or len(engines) > 1 or len(types) + len(engines) < len(suffixes):
        raise ValueError(
            f"{text!r} ends in :{':'.join(suffixes)}: write :spot or :on_demand, or neither,"
            " and :azureml for a cluster in the Azure ML workspace, or :azureml=NAME for that one"
        )
    return Offering(
        region=region,
        vm_size=size,
        capacity_type=CapacityType(*types or [CapacityType.SPOT]),
        engine=Engine(*engines or [Engine.SCALE_SET]),
        cluster=clusters[0].partition("=")[2] if clusters else "",
    )
