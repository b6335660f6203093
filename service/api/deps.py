"""Dependencies of handlers. One request is one transaction, committed before the answer is sent."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, cast

from fastapi import Depends, Header, Request, Security
from fastapi.dependencies.models import Dependant
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from contract.choices import Scope
from service.api.http.drain import Drain
from service.api.http.rate_limits import ConcurrencyLimits, RateLimits
from service.cloud.provider import CloudProvider
from service.db.core.engine import reading
from service.db.core.notify import Listener
from service.db.core.schema_version import KnownMigrations
from service.db.projects.keys import Caller
from service.domain.cloud.fleet import Offering
from service.domain.datasets.dataset import DatasetLimits
from service.domain.errors import UnknownParameter
from service.domain.money.budget import DEFAULT_ALLOWANCE, Allowance
from service.domain.storage.access_tiers import StorageAccount
from service.operations.core.cache import Cache
from service.operations.core.liveness import LoopLiveness
from service.operations.files.uploads import Staging
from service.operations.jobs.preflights import Preflights
from service.operations.nodes.grants import Granter
from service.operations.nodes.heartbeats import HeartbeatBatcher
from service.operations.nodes.registrations import RegistrationBatcher
from service.operations.projects import keys, operators
from service.operations.queue.waits import WaitForecasts
from service.operations.storage.tiers import StorageServices
from service.preflight.graders import GraderProcess
from service.pricing.source import PriceSource
from service.storage.store import BlobStore
from trainer.contract import LONG_POLL_SECONDS

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PlanDefaults:
    """Defaults of all plans of this deployment."""

    offerings: tuple[Offering, ...]
    hazard_per_hour: float
    recovery_seconds: float
    accelerator: str
    processes_per_node: int | None
    cpu_flops: float
    is_emulated: bool = False  # machines are processes on this computer


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The services behind the HTTP API; made in main."""

    engine: AsyncEngine
    store: BlobStore
    prices: PriceSource
    preflights: Preflights
    listener: Listener
    granter: Granter
    plan_defaults: PlanDefaults
    secret: str  # that node tokens are derived from
    outage: timedelta  # how long a node may continue without the service
    now: Callable[[], datetime]
    wall_clock: Callable[[], float] = time.time  # this machine's clock, compared with PostgreSQL's
    accepted_secret: str = ""  # node tokens derived from it are valid too
    cloud: CloudProvider | None = None  # for operators; None: this process has no access to it
    operator_project: str = "operators"  # its keys may read all projects
    allowance: Allowance = DEFAULT_ALLOWANCE  # that budgets reserve for stopping machines
    registers_models: bool = False  # in a workspace of Azure ML
    trackers: frozenset[str] = frozenset({"tensorboard"})  # types of integrations
    mlflow_experiment: str = ""  # default experiment; "": none
    account: StorageAccount = field(default_factory=StorageAccount)  # of the jobs' containers
    limits: DatasetLimits = field(default_factory=DatasetLimits)  # of an uploaded file
    graders: GraderProcess = field(default_factory=GraderProcess)
    staging: Staging = field(default_factory=Staging)  # of parts of uploads
    rates: RateLimits = field(default_factory=RateLimits)
    concurrency: ConcurrencyLimits = field(default_factory=ConcurrencyLimits)
    web: Path | None = None  # the built console; None: not built
    schema: KnownMigrations | None = None  # that /readyz requires
    liveness: LoopLiveness | None = None  # of the loops in this process, if there are any
    long_poll: timedelta = timedelta(seconds=LONG_POLL_SECONDS)
    live_interval: timedelta = timedelta(seconds=1)  # between two events of one job in a list
    stream_lifetime: timedelta = timedelta(minutes=15)  # then the key is checked again

    @cached_property
    def reading(self) -> AsyncEngine:
        """Return the engine for single queries."""
        return reading(self.engine)

    @cached_property
    def drain(self) -> Drain:
        """Return the drain, which ends long polls and other requests at shutdown."""
        return Drain(self.listener)

    @cached_property
    def heartbeats(self) -> HeartbeatBatcher:
        """Return the batcher of heartbeats."""
        return HeartbeatBatcher(self.engine)

    @cached_property
    def registrations(self) -> RegistrationBatcher:
        """Return the batcher of registrations."""
        return RegistrationBatcher(self.engine)

    @cached_property
    def plan_inputs(self) -> Cache:
        """Return a cache of the inputs of plans: prices, evictions, staged models, files."""
        return Cache(self.listener, "plans", seconds=30.0, most=256)

    @cached_property
    def waits(self) -> WaitForecasts:
        """Return the forecasts of how long jobs wait for machines."""
        return WaitForecasts(engine=self.reading, prices=self.prices)

    @property
    def storage(self) -> StorageServices:
        """Return the services that moves between access tiers need."""
        return StorageServices(store=self.store, prices=self.prices, account=self.account)


def parts_of(request: Request) -> Parts:
    """Return the parts behind this app; cheaper than the dependency ``get_parts``."""
    return cast("Parts", request.app.state.parts)


async def get_parts(request: Request) -> Parts:
    """Return the parts behind this app. Async, because FastAPI runs other functions in a thread."""
    return parts_of(request)


PartsDep = Annotated[Parts, Depends(get_parts)]


# Both are described in the API document; `keys.authenticate` reads and refuses them.
_BEARER = HTTPBearer(
    auto_error=False, scheme_name="API key", description="An API key of Rekindle: rk-..."
)
_AZURE_KEY = APIKeyHeader(
    name="api-key",
    auto_error=False,
    scheme_name="api-key header",
    description="The same API key, as Azure OpenAI's clients send it.",
)


async def get_caller(
    request: Request,
    _bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
    _azure_key: Annotated[str | None, Security(_AZURE_KEY)],
    openai_project: Annotated[
        str | None, Header(description="Project of the key, by id or name; operators: any project.")
    ] = None,
) -> Caller:
    """Return the caller and the project of a request; 401, 403, or 400 for an unknown query member.

    Checks the query here because every user route has a caller.
    """
    caller = await authenticate(request)
    if request.scope["query_string"]:
        _check_query(request)
    if not openai_project:
        return caller
    return await _act_in_project(request, parts_of(request), caller, openai_project)


async def require_known_query(request: Request) -> None:
    """Refuse unknown query members of a route that needs no key."""
    if request.scope["query_string"]:
        _check_query(request)


async def authenticate(request: Request) -> Caller:
    """Return the caller by the request's headers; 401, or 429 where the key sent too many requests.

    ``JsonRequest`` calls this before it reads a body, which FastAPI does before any dependency. A
    request is counted once.
    """
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is None:
        parts, cache = parts_of(request), cast("Cache", request.app.state.known_keys)
        azure_key = request.headers.get(_AZURE_KEY.model.name)
        authorization = request.headers.get("authorization")
        authorization = authorization or (f"Bearer {azure_key}" if azure_key else None)
        caller = await keys.authenticate(parts.engine, cache, authorization, parts.now())
        rate = parts.rates.count(caller.api_key_id)
        request.state.rate, request.state.caller = rate, caller
        rate.require_room()
    return caller


async def _act_in_project(request: Request, parts: Parts, caller: Caller, project: str) -> Caller:
    """Return the caller in the named project; an operator's access to another project is logged."""
    acting_caller = await operators.act_in_project(
        parts.engine, caller, project, parts.operator_project
    )
    if acting_caller.project_id != caller.project_id:
        facts = {
            "key": caller.api_key_id,
            "project": acting_caller.project_id,
            "method": request.method,
        }
        facts |= {"path": request.url.path, "request_id": request.state.request_id}
        log.info("operator.acts", extra=facts)
    return acting_caller


CallerDep = Annotated[Caller, Depends(get_caller)]


@dataclass(frozen=True)
class RequiredScope:
    """Dependency: the caller, whose key must have this scope; else 403. Every user route has one.

    An operator's key must also belong to the operators' project.
    """

    scope: Scope

    async def __call__(self, parts: PartsDep, caller: CallerDep) -> Caller:
        """Return the caller, or raise PermissionDenied."""
        if self.scope is Scope.OPERATOR:
            await operators.require_project(parts.engine, caller, parts.operator_project)
        operators.require_scope(caller.scope, self.scope)
        return caller


Reader = Annotated[Caller, Depends(RequiredScope(Scope.READ))]
Writer = Annotated[Caller, Depends(RequiredScope(Scope.WRITE))]
Operator = Annotated[Caller, Depends(RequiredScope(Scope.OPERATOR))]


async def get_connection(parts: PartsDep, caller: CallerDep) -> AsyncIterator[AsyncConnection]:
    """Commit when the handler returns, roll back when it raises.

    The caller is authenticated before: requests that hold a connection while they wait for a
    second one, to check the key, can deadlock.
    """
    async with parts.engine.begin() as conn:
        yield conn


# scope="function": by default FastAPI would commit after the answer was sent.
Db = Annotated[AsyncConnection, Depends(get_connection, scope="function")]


def _check_query(request: Request) -> None:
    """Refuse undeclared query members: a misspelt filter must not match everything."""
    declared = _query_names(request.scope["route"].dependant)
    for name in request.query_params:
        member = "metadata" if name.startswith("metadata[") else name
        if member not in declared and name != "api-version":
            known_names = ", ".join(sorted(declared)) or "none"
            raise UnknownParameter(
                f"{name}: unknown query parameter. {request.url.path} takes: {known_names}.",
                param=name,
            )


def _query_names(dependant: Dependant) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    return names.union(*map(_query_names, dependant.dependencies))


async def get_now(request: Request) -> datetime:
    """Return the time by the app's clock."""
    return parts_of(request).now()


Now = Annotated[datetime, Depends(get_now)]


def bearer(authorization: str | None) -> str:
    """Return the token of an Authorization header; empty when there is none."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
