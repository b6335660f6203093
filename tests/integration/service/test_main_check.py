"""`python -m service.main check`: one run tells of everything that is wrong."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from service import check as checks
from service.check import SetupCheck
from service.db.core.engine import make_engine
from service.db.core.schema_version import KnownMigrations
from service.trackers.mlflow import Mlflow
from tests.azurite import KEY, NEAR, Azurite
from tests.mlflow_server import MlflowServer

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = {
    "REKINDLE_PUBLIC_URL": "http://service",
    "REKINDLE_SECRET_KEY": "a secret that is long enough for the tests",
    "REKINDLE_DEPLOYMENT": "test",
    "REKINDLE_CLOUD": "fake",
    "REKINDLE_OFFERINGS": "Standard_ND96amsr_A100_v4@eastus",
}
DEAD = "postgresql://rekindle:open-sesame@127.0.0.1:1/rekindle"


async def check(*arguments: str, **settings: str) -> tuple[int, str]:
    """Run the command; its exit status and output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service.main", "check", *arguments),
        cwd=ROOT,
        env=SETTINGS | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, errors = await process.communicate()
    assert process.returncode is not None
    assert errors == b""
    return process.returncode, stdout.decode()


Look = Callable[..., Awaitable[Mapping[str, SetupCheck]]]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Look:
    """Return the checks of the command by name, without starting a process."""

    async def look(**settings: str) -> Mapping[str, SetupCheck]:
        for name, value in (SETTINGS | settings).items():
            monkeypatch.setenv(name, value)
        any_schema = KnownMigrations(newest="9999", known=frozenset())
        return {result.name: result async for result in checks.run_checks(any_schema, time.time)}

    return look


async def test_a_service_that_would_start_has_nothing_wrong(
    database_url: str, azurite: Azurite
) -> None:
    region_storage = json.dumps({"westus3": azurite.near_connection_string})
    status, stdout = await check(
        "--json",
        REKINDLE_DATABASE_URL=database_url,
        REKINDLE_STORAGE=azurite.connection_string,
        REKINDLE_REGION_STORAGE=region_storage,
    )

    check_list = json.loads(stdout)
    assert (status, [result["remedy"] for result in check_list]) == (0, [""] * 4)
    assert [result["name"] for result in check_list] == [
        "settings",
        "database",
        "storage",
        "storage of westus3",
    ]


async def test_all_faults_are_reported_at_once_without_secrets() -> None:
    invalid_settings = {"REKINDLE_SECRET_KEY": "short", "REKINDLE_STORAGE": "AccountKey=nonsense"}
    status, stdout = await check(**invalid_settings, REKINDLE_DATABASE_URL=DEAD)

    wrong_lines = [line for line in stdout.splitlines() if line.startswith("wrong ")]
    assert status == 1
    assert [line.split(":")[0].split()[1] for line in wrong_lines] == [
        "REKINDLE_SECRET_KEY",
        "database",
        "storage",
    ]
    assert "Connection refused" in wrong_lines[1]
    assert not any(secret in stdout for secret in ("short", "open-sesame", "nonsense"))


async def test_a_database_without_migrations_is_reported(database_url: str, parts: Look) -> None:
    empty = database_url.replace("/rekindle?", "/postgres?")
    assert empty != database_url

    results = await parts(REKINDLE_DATABASE_URL=empty, REKINDLE_STORAGE="nonsense")

    assert results["database"].found.startswith("The schema is empty, this release needs")
    assert results["database"].remedy == "Run: python -m service.main migrate"


async def test_a_read_only_database_is_reported(database_url: str, parts: Look) -> None:
    read_only = f"{database_url}&options=-c%20default_transaction_read_only%3Don"
    results = await parts(REKINDLE_DATABASE_URL=read_only, REKINDLE_STORAGE="nonsense")

    assert "takes no writes" in results["database"].found


async def test_missing_rights_on_tables_are_reported(database_url: str, parts: Look) -> None:
    engine = make_engine(database_url)
    async with engine.begin() as conn:
        await conn.execute(text("create role stranger login"))
    try:
        stranger_url = make_url(database_url).set(username="stranger").render_as_string(False)
        results = await parts(REKINDLE_DATABASE_URL=stranger_url, REKINDLE_STORAGE="nonsense")
    finally:
        async with engine.begin() as conn:
            await conn.execute(text("drop role stranger"))
        await engine.dispose()

    assert results["database"].found == "permission denied for table alembic_version"
    assert results["database"].remedy == "May its user read our tables?"


@pytest.mark.parametrize("url", ["nonsense", "mongodb://host/name", "postgresql://host:port/name"])
async def test_an_invalid_database_url_is_reported_with_its_format(url: str, parts: Look) -> None:
    results = await parts(REKINDLE_DATABASE_URL=url, REKINDLE_STORAGE="nonsense")

    assert "postgresql://USER:PASSWORD@HOST" in results["database"].remedy


@pytest.mark.parametrize(
    ("there", "instead", "message"),
    [
        (KEY, KEY[:8] + KEY[:8].swapcase() + KEY[16:], "Auth"),  # rotated since
        (NEAR, NEAR, ""),
    ],
)
async def test_a_refused_account_key_is_reported(
    azurite: Azurite, parts: Look, there: str, instead: str, message: str
) -> None:
    account = azurite.connection_string.replace(there, instead)

    results = await parts(REKINDLE_DATABASE_URL=DEAD, REKINDLE_STORAGE=account)

    assert message in results["storage"].found
    assert (results["storage"].remedy == "") is (message == "")


@pytest.mark.parametrize(
    ("account", "message"),
    [
        ("http://account.blob.core.windows.net", "HTTPS"),
        ("https://blobs.example", "SAS name the account"),
    ],
)
async def test_an_invalid_account_url_is_reported_with_its_format(
    parts: Look, account: str, message: str
) -> None:
    results = await parts(REKINDLE_DATABASE_URL=DEAD, REKINDLE_STORAGE=account)

    assert message in results["storage"].found
    assert "https://ACCOUNT.blob.core.windows.net" in results["storage"].remedy


async def test_a_storage_account_is_not_checked_without_an_identity(parts: Look) -> None:
    url = "https://account.blob.core.windows.net"
    results = await parts(REKINDLE_DATABASE_URL=DEAD, REKINDLE_STORAGE=url, REKINDLE_OFFERINGS="")

    assert "not asked" in results["storage"].found


async def test_trackers_are_checked_without_showing_their_secrets(parts: Look) -> None:
    server = MlflowServer()
    reachable = await checks.mlflow(Mlflow.at("http://ann:open-sesame@mlflow", "", server))
    server.status = 401
    refusal = await checks.mlflow(Mlflow.at("http://ann:open-sesame@mlflow", "", server))
    results = await parts(
        REKINDLE_DATABASE_URL=DEAD,
        REKINDLE_STORAGE="nonsense",
        REKINDLE_MLFLOW_TRACKING_URI="http://ann:open-sesame@127.0.0.1:1",
    )

    assert (reachable.remedy, refusal.found) == (
        "",
        "MLflow answered experiments/search with 401 INTERNAL_ERROR",
    )
    assert results["mlflow"].found == "MLflow did not answer experiments/search: ConnectError"
    assert "REKINDLE_MLFLOW_TRACKING_URI" in results["mlflow"].remedy
    assert not any("sesame" in str(result) for result in (refusal, results["mlflow"]))


def test_a_wandb_key_without_the_package_is_reported() -> None:
    assert checks.wandb(is_installed=True).remedy == ""
    assert "pip install 'rekindle[trackers]'" in checks.wandb(is_installed=False).remedy
