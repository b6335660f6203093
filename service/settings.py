"""One frozen object from the environment (REKINDLE_*); read by main only, passed down as values."""

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
from contract.figures import WORKSPACE
from service.cloud.azure_policy import AzurePolicy
from service.domain.cloud.fleet import Offering
from service.domain.datasets.dataset import Limits
from service.domain.lifecycle.attempt import Pace
from service.domain.money.budget import Allowance
from service.domain.money.cost import Egress
from service.domain.queue.admission import Quota
from service.domain.queue.project_limits import REQUESTS_PER_MINUTE
from service.domain.spot.capacity_traces import Place, place_of
from service.domain.states import TIME_LIMITS, AttemptState, CapacityType
from service.domain.storage.access_tiers import Account
from service.storage.store import is_account_url

_SHORTEST_SECRET = 32  # characters


class DatabaseSettings(BaseSettings):
    """What commands need that only read and write the database: migrate, key, budget, quota."""

    model_config = SettingsConfigDict(env_prefix="REKINDLE_", frozen=True, extra="ignore")

    database_url: SecretStr
    project_max_jobs: int | None = Field(default=None, ge=0)  # None: any number; of a project ...
    project_max_gpus: int | None = Field(default=None, ge=0)  # ... without a quota of its own

    @property
    def usual_quota(self) -> Quota:
        """What a project may hold that was given no quota of its own."""
        return Quota(max_jobs=self.project_max_jobs, max_gpus=self.project_max_gpus)


class Settings(DatabaseSettings):
    """Every setting of the service. Durations are in seconds."""

    storage: SecretStr  # URL of the storage account, or (local use) its connection string
    region_storage: Annotated[dict[str, SecretStr], NoDecode] = {}  # for copies of base models
    storage_region: str = ""  # for its prices; "": the first offering's
    storage_redundancy: Literal["LRS", "ZRS", "GRS", "RAGRS", "GZRS", "RAGZRS"] = "LRS"
    storage_ingress_gbps: float = Field(  # of the account: the nodes of a job share it
        default=60.0, gt=0, description="Microsoft's published limit: 60 in large regions, else 25"
    )
    public_url: str = Field(description="Where nodes reach this service")
    secret_key: SecretStr = Field(
        min_length=_SHORTEST_SECRET, description="Node tokens are derived from it"
    )
    accepted_secret_key: SecretStr = Field(
        default=SecretStr(""), description="Tokens derived from it are good as well: for a rotation"
    )
    deployment: str = Field(  # the owner tag of every scale set
        min_length=1,
        description="A name that no other service with the same resource group has, for ever: "
        "the sweep deletes what carries it and is not in this database",
    )

    operator_project: str = "operators"  # its keys may ask for the audit, over all projects

    cloud: Literal["azure", "fake"] = "azure"
    azure_subscription_id: str = ""
    azure_resource_group: str = ""
    azure_tenant_id: str = ""
    azure_client_id: str = ""
    azure_client_secret: SecretStr = SecretStr("")
    azure_endpoint: str = "https://management.azure.com"
    azure_ca: Path | None = None  # of a private endpoint, e.g. the emulator's
    azure_subnet_id: str = ""
    azure_identity_id: str = ""
    azure_image: str = "microsoft-dsvm:ubuntu-hpc:2204:latest"
    azure_ssh_public_key: str = ""
    azure_policy: Annotated[AzurePolicy, NoDecode] = AzurePolicy()
    azureml_workspace: str = ""  # of :azureml offerings and of register_model
    azureml_resource_group: str = ""  # of the workspace; "": azure_resource_group
    azureml_subnet_id: str = ""  # "": the network that Azure ML gives

    wandb_api_key: SecretStr = SecretStr("")  # of integrations of type wandb; "": refused
    mlflow_tracking_uri: SecretStr = SecretStr("")  # with a password, or azureml://...
    mlflow_tracking_token: SecretStr = SecretStr("")  # a bearer token; "": none

    azure_limits_times: float = Field(  # of requests, where Azure has raised the subscription's
        default=1.0, gt=0, description="1: Microsoft's published limits per region"
    )

    prices_url: str = "https://prices.azure.com"
    offerings: Annotated[tuple[Offering, ...], NoDecode]
    hazard_per_hour: float = 0.05  # evictions of one node, until own figures are there
    egress_per_gib: float = Field(
        default=0.02, ge=0, description="US dollars for a GiB that leaves its region, in choices"
    )
    recovery_seconds: float = Field(
        default=600.0, gt=0, description="From an eviction to the next training step, for forecasts"
    )
    accelerator: Literal["cuda", "cpu"] = "cuda"
    processes_per_node: int | None = None  # None: one per GPU
    cpu_flops: float = 5e9
    trainer_image: str = "rekindle-trainer:latest"

    requests_per_minute: int = Field(
        default=REQUESTS_PER_MINUTE, ge=1, description="Of one API key, to one api process"
    )
    file_max_bytes: int = Field(default=Limits.max_bytes, ge=1)
    upload_max_bytes: int = Field(default=Limits.max_upload_bytes, ge=1)
    file_max_line_bytes: int = Field(default=Limits.max_line_bytes, ge=1)
    file_max_examples: int = Field(default=Limits.max_examples, ge=1)

    poll_seconds: float = 10.0
    provisioning_seconds: float = Field(
        default=TIME_LIMITS[AttemptState.PROVISIONING][0].total_seconds(),
        gt=0,
        le=3600,
        description="Of an order of machines, before the job looks elsewhere",
    )
    read_lag_seconds: float = 60.0
    silence_seconds: float = 300.0
    settle_seconds: float = 60.0  # for nodes to stop
    save_seconds: float = 900.0  # for nodes to save, upload and stop
    delete_seconds: float = 900.0  # that 99 % of deletions take; budgets keep money for it
    outage_seconds: float = 1800.0  # how long a node goes on without hearing from us
    budget_outage_seconds: float | None = Field(default=None, ge=0)  # None: outage_seconds
    grant_hours: float | None = Field(  # None: a day; without an account key an hour
        default=None, gt=0, le=144, description="A user delegation key lives 7 days at most"
    )
    drain_seconds: float = 10.0
    event_days: int = Field(default=400, ge=1, description="events stay after their job's end")
    metric_days: int = Field(default=400, ge=1, description="metrics stay after their job's end")

    @property
    def reserved_outage(self) -> float:
        """Seconds of an outage of the service that budgets reserve money for."""
        reserved = self.budget_outage_seconds
        return self.outage_seconds if reserved is None else reserved

    @property
    def grant_life(self) -> timedelta:
        """How long nodes' SAS URLs live; renewed at half of it.

        Without an account key nothing revokes the URL of one attempt, so it lives an hour. The half
        of it that is always left outlasts an outage of this service.
        """
        if self.grant_hours is not None:
            return timedelta(hours=self.grant_hours)
        if is_account_url(self.storage.get_secret_value()):
            return max(timedelta(hours=1), timedelta(seconds=2 * self.outage_seconds))
        return timedelta(days=1)

    @property
    def allowance(self) -> Allowance:
        """How long machines may cost money once they are to go: kept aside in every budget."""
        return Allowance(
            save=timedelta(seconds=self.save_seconds),
            delete=timedelta(seconds=self.delete_seconds),
            outage=timedelta(seconds=self.reserved_outage),
            unheard=timedelta(seconds=self.outage_seconds),
            look=timedelta(seconds=6 * self.poll_seconds + self.read_lag_seconds),
        )

    @property
    def pace(self) -> Pace:
        """How long things may take."""
        return Pace(
            poll=timedelta(seconds=self.poll_seconds),
            read_lag=timedelta(seconds=self.read_lag_seconds),
            silence=timedelta(seconds=self.silence_seconds),
            settle=timedelta(seconds=self.settle_seconds),
            save=timedelta(seconds=self.save_seconds),
            provisioning=timedelta(seconds=self.provisioning_seconds),
        )

    @property
    def emulated(self) -> bool:
        """True where machines are emulated: addresses of Azure Resource Manager begin so."""
        host = urlsplit(self.azure_endpoint).hostname or ""
        return self.cloud == "fake" or not host.startswith("management.")

    @property
    def has_azureml(self) -> bool:
        """True where jobs may go to the Azure ML workspace."""
        return any(o.engine is Engine.AZUREML for o in self.offerings)

    @property
    def tracks_in_workspace(self) -> bool:
        """Whether the MLflow server is that of an Azure ML workspace, which gets every job."""
        return self.mlflow_tracking_uri.get_secret_value().startswith(WORKSPACE)

    @property
    def wandb_environment(self) -> dict[str, str]:
        """What the processes of wandb get of this environment: no secret of ours."""
        passed = ("PATH", "PYTHONPATH", "SSL_CERT_FILE", "HTTPS_PROXY", "NO_PROXY")
        wandb = [name for name in os.environ if name.startswith("WANDB_")]
        return {name: os.environ[name] for name in (*passed, *wandb) if name in os.environ}

    @property
    def egress(self) -> Egress:
        """What a checkpoint costs on its way to machines elsewhere."""
        return Egress(home=self.account.region, per_gib=self.egress_per_gib)

    @property
    def account(self) -> Account:
        """Where the main storage account is, and how its bytes are kept."""
        region = self.storage_region or self.offerings[0].region
        return Account(region=region, redundancy=self.storage_redundancy)

    @property
    def spot_pools(self) -> tuple[str, ...]:
        """Whose Spot cores may be asked for: of regions, and of engines that have their own."""
        spot = {o.pool for o in self.offerings if o.capacity_type is CapacityType.SPOT}
        return tuple(sorted(spot))

    @property
    def spot_places(self) -> tuple[Place, ...]:
        """Which Spot machines may be asked for, and where."""
        spot = (o for o in self.offerings if o.capacity_type is CapacityType.SPOT)
        return tuple(dict.fromkeys(map(place_of, spot)))

    @field_validator("offerings", mode="before")
    @classmethod
    def parse_offerings(cls, value: object) -> object:
        """ "SIZE@REGION[:on_demand][:azureml[=CLUSTER]],..." -> offerings."""
        if not isinstance(value, str):
            return value
        if not (parts := [part.strip() for part in value.split(",") if part.strip()]):
            raise ValueError("it is empty: name at least one, SIZE@REGION")
        offerings = tuple(map(_offering, parts))
        for one in offerings:
            if len({other.cluster for other in offerings if other == one}) > 1:
                raise ValueError(f"{one} has several clusters: name one cluster, or none")
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
        """An empty variable is one that is not set."""
        return value or None

    @field_validator("accepted_secret_key")
    @classmethod
    def long_or_empty(cls, value: SecretStr) -> SecretStr:
        """As hard to guess as the other one."""
        if 0 < len(value) < _SHORTEST_SECRET:
            raise ValueError(f"it is shorter than {_SHORTEST_SECRET} characters; empty: none")
        return value

    @model_validator(mode="after")
    def complete(self) -> Self:
        """Refuse to start half configured."""
        names = ("subscription_id", "resource_group", "subnet_id", "ssh_public_key")
        missing = [n for n in names if not getattr(self, f"azure_{n}")]
        if self.cloud == "azure" and missing:
            named = ", ".join(f"REKINDLE_AZURE_{n.upper()}" for n in missing)
            raise ValueError(f"REKINDLE_CLOUD=azure needs {named}")
        if self.has_azureml and not self.azureml_workspace and self.cloud == "azure":
            raise ValueError(
                "offerings that end in :azureml need REKINDLE_AZUREML_WORKSPACE, its name"
            )
        return self


def _offering(text: str) -> Offering:
    size, at, place = text.partition("@")
    region, *words = place.split(":")
    if not (size and at and region):
        raise ValueError(f"{text!r} is no offering: write SIZE@REGION or SIZE@REGION:on_demand")
    bought = [word for word in words if word in list(CapacityType)]
    engines = [word for word in words if word in list(Engine)]
    named = [word for word in words if re.fullmatch(r"azureml=[A-Za-z0-9-]+", word)]
    engines += [Engine.AZUREML for _ in named]
    if len(bought) > 1 or len(engines) > 1 or len(bought) + len(engines) < len(words):
        raise ValueError(
            f"{text!r} ends in :{':'.join(words)}: write :spot or :on_demand, or neither,"
            " and :azureml for a cluster in the Azure ML workspace, or :azureml=NAME for that one"
        )
    return Offering(
        region=region,
        vm_size=size,
        capacity_type=CapacityType(*bought or [CapacityType.SPOT]),
        engine=Engine(*engines or [Engine.SCALE_SET]),
        cluster=named[0].partition("=")[2] if named else "",
    )
