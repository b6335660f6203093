"""`python -m service.main key`: the way in for who has no key, and the way back."""

import asyncio
import sys
from pathlib import Path

import pytest

from service.db import engine as engines
from service.db.keys import Key
from service.db.notices import Listener
from service.domain.errors import InvalidApiKey
from service.operations import keys
from service.operations.kept import Kept
from tests.clock import Clock

ROOT = Path(__file__).resolve().parents[2]


async def key(url: str, *words: str) -> tuple[int, str, str]:
    """Run the command; its exit status, output and errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service.main", "key", *words),
        cwd=ROOT,
        env={"REKINDLE_DATABASE_URL": url},  # and no other setting
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


@pytest.mark.timeout(120)
async def test_an_operator_makes_lists_and_revokes_keys(database_url: str, clock: Clock) -> None:
    _, secret, _ = await key(database_url, "create", "--project", "p", "--name", "laptop")
    status, listed, _ = await key(database_url, "list", "--project", "p")
    key_id = listed.split()[0]

    assert status == 0
    assert secret.strip().startswith("rk-")
    assert secret.strip() not in listed
    assert listed.rstrip().endswith("never used  laptop")
    assert f"rk-...{secret.strip()[-4:]}" in listed

    status, revoked, _ = await key(database_url, "revoke", key_id, "--project", "p")

    assert (status, "0 keys left" in revoked) == (0, True)
    assert (await key(database_url, "list", "--project", "p"))[1] == ""
    engine = engines.make_engine(database_url)
    known = Kept[Key](Listener(database_url), seconds=1.0, most=1)
    try:
        with pytest.raises(InvalidApiKey, match="was revoked"):
            await keys.authenticate(engine, known, f"Bearer {secret.strip()}", clock())
    finally:
        await engine.dispose()


@pytest.mark.timeout(120)
async def test_what_is_not_there_is_named(database_url: str) -> None:
    status, _, errors = await key(database_url, "list", "--project", "none")
    assert (status, "No project 'none'" in errors) == (1, True)

    await key(database_url, "create", "--project", "p")
    status, _, errors = await key(database_url, "revoke", "key-none", "--project", "p")
    assert (status, "No API key key-none" in errors) == (1, True)
