"""`python -m service.main check`: check the settings, PostgreSQL, Blob and trackers.

Each part is checked even if another one fails, so that one run reports everything.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from psycopg.errors import UndefinedTable
from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.exc import ArgumentError, ProgrammingError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.core import database_health
from service.db.core.engine import make_engine
from service.db.core.schema_version import KnownMigrations
from service.settings import Settings
from service.storage.store import BlobNotFound, BlobStore, StorageError, is_account_url
from service.trackers.tracker import TrackerError

if TYPE_CHECKING:
    from service.trackers.mlflow import Mlflow

_CONTAINER, _BLOB = "files", "check"  # any name will do: a missing blob is an answer, too
_URL = "Write it so: postgresql://USER:PASSWORD@HOST:5432/NAME"
_ACCOUNT = "Write it so: https://ACCOUNT.blob.core.windows.net"
_KEYED = "it answers, and takes the key; its URL in place of the key needs none: docs/operations.md"
NO_ADDRESS = (ValueError, ArgumentError, ImportError)  # of `make_engine`
_MIGRATE = "Run: python -m service.main migrate"


@dataclass(frozen=True)
class SetupCheck:
    """Result of checking one part, which passed if there is no ``remedy``."""

    name: str
    found: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        verdict = "wrong" if self.remedy else "ok   "
        return f"{verdict} {self.name}: {self.found}" + (self.remedy and f"\n      {self.remedy}")


class _EndpointSettings(BaseSettings):
    """Settings that can be checked even if others are invalid."""

    model_config = SettingsConfigDict(env_prefix="REKINDLE_", extra="ignore")

    database_url: SecretStr = SecretStr("")
    storage: SecretStr = SecretStr("")


async def run_checks(
    schema: KnownMigrations, wall: Callable[[], float]
) -> AsyncIterator[SetupCheck]:
    """Check all parts. ``schema``: what this release needs; ``wall``: this machine's clock."""
    accounts: dict[str, SecretStr] = {}
    settings = None
    try:
        settings = Settings()  # type: ignore[call-arg]  # the environment fills it
    except ValidationError as error:
        for name, fault in faults(error):
            yield SetupCheck(name, fault, "Mend it: docs/operations.md, Settings.")
    else:
        yield SetupCheck("settings", "all are good")
        accounts = {f"storage of {r}": a for r, a in settings.region_storage.items()}
    endpoints = _EndpointSettings()
    if url := endpoints.database_url.get_secret_value():
        yield await _database(url, schema, wall)
    if endpoints.storage.get_secret_value():
        accounts = {"storage": endpoints.storage, **accounts}
    for name, account in accounts.items():
        yield await _storage(name, account.get_secret_value(), settings, wall)
    if settings is not None and (uri := settings.mlflow_tracking_uri.get_secret_value()):
        from service.trackers.mlflow import Mlflow  # noqa: PLC0415 - as azure_access below

        yield await mlflow(Mlflow.at(uri, settings.mlflow_tracking_token.get_secret_value()))
    if settings is not None and settings.wandb_api_key.get_secret_value():
        yield wandb(is_installed=find_spec("wandb") is not None)


def faults(error: ValidationError) -> list[tuple[str, str]]:
    """Return each invalid setting by its environment variable, with the reason."""
    return [
        ("_".join(("REKINDLE", *map(str, fault["loc"]))).upper(), fault["msg"])
        for fault in error.errors(include_url=False, include_input=False)
    ]


async def _database(url: str, schema: KnownMigrations, wall: Callable[[], float]) -> SetupCheck:
    try:
        engine = make_engine(url, pool_size=1)
    except NO_ADDRESS as error:
        return database_fault(error)
    try:
        return await _ready(engine, schema, wall)
    except SQLAlchemyError as error:
        return database_fault(error)
    finally:
        await engine.dispose()


def database_fault(error: Exception) -> SetupCheck:
    """Return why the database cannot be used, and what to do."""
    if isinstance(error, NO_ADDRESS):
        return SetupCheck("database", "REKINDLE_DATABASE_URL is no address of PostgreSQL", _URL)
    cause = getattr(error, "orig", None) or error
    remedy = "Is it running, may this machine reach it, and are user and password right?"
    if isinstance(cause, UndefinedTable):
        remedy = _MIGRATE
    elif isinstance(error, ProgrammingError):
        remedy = "May its user read our tables?"
    return SetupCheck("database", _first_line(str(cause)), remedy)


async def _ready(
    engine: AsyncEngine, schema: KnownMigrations, wall: Callable[[], float]
) -> SetupCheck:
    """Check what /readyz checks."""
    async with engine.connect() as conn:
        if find_fault := await database_health.find_fault(conn, wall):
            return SetupCheck(
                "database", find_fault, "Until then no process of the service is ready."
            )
        if fault := await schema.fault(conn):
            return SetupCheck("database", fault, _MIGRATE)
    return SetupCheck("database", "it answers, takes writes, and has the schema that is needed")


async def _storage(
    name: str, account: str, settings: Settings | None, wall: Callable[[], float]
) -> SetupCheck:
    """Check an account; ``settings`` have the identity for an account given by its URL."""
    from service import azure_access  # noqa: PLC0415 - takes 0.5 s of every start

    def now() -> datetime:
        return datetime.fromtimestamp(wall(), UTC)

    if settings is None and is_account_url(account):
        return SetupCheck(
            name, "not asked: who signs in is not known", "Mend the settings above first."
        )
    try:
        store = azure_access.blobs(settings, account, now, retries=0)
    except ValueError as error:
        return SetupCheck(name, f"no URL or connection string: {_first_line(str(error))}", _ACCOUNT)
    try:
        return await _answers(name, store, now())
    finally:
        await store.close()


async def _answers(name: str, store: BlobStore, now: datetime) -> SetupCheck:
    """Read a blob, and sign a URL: a role that allows the first may not allow the second."""
    try:
        with contextlib.suppress(BlobNotFound):
            await store.read(_CONTAINER, _BLOB)
        await store.sas_url(_CONTAINER, _BLOB, permissions="r", expires_at=now + timedelta(hours=1))
    except StorageError as error:
        remedy = (
            "May the service's identity, or the key, use the account, and this machine reach it?"
        )
        return SetupCheck(name, _first_line(str(error), 400), remedy)
    if store.has_access_policies:
        return SetupCheck(name, _KEYED)
    return SetupCheck(name, "it answers, takes the sign-in, and gives user delegation keys")


async def mlflow(tracker: "Mlflow") -> SetupCheck:
    """Ask the tracking server for its experiments, and close the tracker."""
    try:
        await tracker.check()
    except TrackerError as error:
        remedy = "Are REKINDLE_MLFLOW_TRACKING_URI and _TOKEN right, and may this machine reach it?"
        return SetupCheck("mlflow", str(error), remedy)
    finally:
        await tracker.close()
    return SetupCheck("mlflow", "it answers, and takes the sign-in")


def wandb(*, is_installed: bool) -> SetupCheck:
    """Report whether batches can be sent; the first of them tests the key."""
    if is_installed:
        return SetupCheck("wandb", "the package is installed; the first job tries the key")
    remedy = "Run: pip install 'rekindle[trackers]', or unset REKINDLE_WANDB_API_KEY"
    return SetupCheck("wandb", "a key is set, but the package wandb is not installed", remedy)


def _first_line(text: str, most: int = 200) -> str:
    return (text.strip().splitlines() or ["no reason was given"])[0][:most]
