"""`python -m service.main check`: one run tells of everything that is wrong."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.azurite import KEY, NEAR, Azurite

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "REKINDLE_PUBLIC_URL": "http://service",
    "REKINDLE_SECRET_KEY": "a secret that is long enough for the tests",
    "REKINDLE_DEPLOYMENT": "test",
    "REKINDLE_CLOUD": "fake",
    "REKINDLE_OFFERINGS": "Standard_ND96amsr_A100_v4@eastus",
}
DEAD = "postgresql://rekindle:open-sesame@127.0.0.1:1/rekindle"


async def check(*words: str, **settings: str) -> tuple[int, str]:
    """Run the command; its exit status and output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service.main", "check", *words),
        cwd=ROOT,
        env=SETTINGS | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode is not None
    assert errors == b""
    return process.returncode, out.decode()


async def parts(**settings: str) -> Mapping[str, Mapping[str, str]]:
    """The same for a program, by name."""
    _, out = await check("--json", **settings)
    return {part["name"]: part for part in json.loads(out)}


@pytest.mark.timeout(120)
async def test_a_service_that_would_start_has_nothing_wrong(
    database_url: str, azurite: Azurite
) -> None:
    near = json.dumps({"westus3": azurite.near_connection_string})
    status, out = await check(
        REKINDLE_DATABASE_URL=database_url,
        REKINDLE_STORAGE=azurite.connection_string,
        REKINDLE_REGION_STORAGE=near,
    )

    assert (status, "wrong" in out) == (0, False)
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "ok    settings",
        "ok    database",
        "ok    storage",
        "ok    storage of westus3",
    ]


@pytest.mark.timeout(120)
async def test_all_that_is_wrong_is_told_at_once_and_no_secret_of_it() -> None:
    bad = {"REKINDLE_SECRET_KEY": "short", "REKINDLE_STORAGE": "AccountKey=nonsense"}
    status, out = await check(**bad, REKINDLE_DATABASE_URL=DEAD)

    wrong = [line for line in out.splitlines() if line.startswith("wrong ")]
    assert status == 1
    assert [line.split(":")[0].split()[1] for line in wrong] == [
        "REKINDLE_SECRET_KEY",
        "database",
        "storage",
    ]
    assert "Connection refused" in wrong[1]
    assert not any(secret in out for secret in ("short", "open-sesame", "nonsense"))


@pytest.mark.timeout(120)
async def test_a_database_that_was_never_migrated_is_told_so(database_url: str) -> None:
    empty = database_url.replace("/rekindle?", "/postgres?")
    assert empty != database_url

    found = await parts(REKINDLE_DATABASE_URL=empty, REKINDLE_STORAGE="nonsense")

    assert found["database"]["remedy"] == "Run: python -m service.main migrate"


@pytest.mark.timeout(120)
async def test_a_database_that_takes_no_writes_is_told(database_url: str) -> None:
    frozen = f"{database_url}&options=-c%20default_transaction_read_only%3Don"

    found = await parts(REKINDLE_DATABASE_URL=frozen, REKINDLE_STORAGE="nonsense")

    assert "takes no writes" in found["database"]["found"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("url", ["nonsense", "mongodb://host/name", "postgresql://host:port/name"])
async def test_what_is_no_address_of_a_database_is_told_with_how_to_write_one(url: str) -> None:
    found = await parts(REKINDLE_DATABASE_URL=url, REKINDLE_STORAGE="nonsense")

    assert "postgresql://USER:PASSWORD@HOST" in found["database"]["remedy"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("there", "instead", "said"),
    [
        (KEY, KEY[:8] + KEY[:8].swapcase() + KEY[16:], "Auth"),  # rotated since
        (NEAR, NEAR, ""),
    ],
)
async def test_an_account_that_does_not_take_the_key_is_told(
    azurite: Azurite, there: str, instead: str, said: str
) -> None:
    account = azurite.connection_string.replace(there, instead)

    found = await parts(REKINDLE_DATABASE_URL=DEAD, REKINDLE_STORAGE=account)

    assert said in found["storage"]["found"]
    assert (found["storage"]["remedy"] == "") is (said == "")
