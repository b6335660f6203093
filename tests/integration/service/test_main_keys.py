"""`python -m service.main key`: the way in for who has no key, and the way back."""

import asyncio
import sys
from pathlib import Path

import pytest

from service.db.core import engine as engines
from service.db.core.notify import Listener
from service.domain.errors import InvalidApiKey
from service.operations.projects import keys
from tests.clock import Clock

ROOT = Path(__file__).resolve().parents[3]


async def key(url: str, *words: str) -> tuple[int, str, str]:
    """Run `key` with the database alone; its exit status, output and errors."""
    return await run({"REKINDLE_DATABASE_URL": url}, "key", *words)


async def run(settings: dict[str, str], *words: str) -> tuple[int, str, str]:
    """Run a command with these settings and no others; its exit status, output and errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service.main", *words),
        cwd=ROOT,
        env=settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def test_an_operator_makes_lists_and_revokes_keys(database_url: str, clock: Clock) -> None:
    words = ("--name", "laptop", "--scope", "read", "--days", "30")
    _, secret, _ = await key(database_url, "create", "--project", "p", *words)
    status, listed, _ = await key(database_url, "list", "--project", "p")
    key_id = listed.split()[0]

    assert status == 0
    assert secret.strip().startswith("rk-")
    assert secret.strip() not in listed
    assert listed.rstrip().endswith("never used  laptop")
    assert f"rk-...{secret.strip()[-4:]}  read  made " in listed
    assert " by key create  expires 20" in listed

    status, revoked, _ = await key(database_url, "revoke", key_id, "--project", "p")

    assert (status, "0 keys left" in revoked) == (0, True)
    assert (await key(database_url, "list", "--project", "p"))[1] == ""
    engine = engines.make_engine(database_url)
    known = keys.cache(Listener(database_url))
    try:
        with pytest.raises(InvalidApiKey, match="was revoked"):
            await keys.authenticate(engine, known, f"Bearer {secret.strip()}", clock())
    finally:
        await engine.dispose()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("migrate", ""),
        ("key create --project p", "rk-"),
        ("budget --project p", "p"),
        ("quota --project p", "under way of 2"),
        ("quota --project p --max-keys 5", "1 of 5 API keys"),
    ],
)
async def test_a_command_on_the_database_needs_its_address_alone(
    database_url: str, words: str, said: str
) -> None:
    settings = {"REKINDLE_DATABASE_URL": database_url, "REKINDLE_PROJECT_MAX_JOBS": "2"}
    await key(database_url, "create", "--project", "p")
    unread = {"REKINDLE_STORAGE": "", "REKINDLE_OFFERINGS": "nonsense", "REKINDLE_CLOUD": "none"}

    alone = await run(settings, *words.split())
    beside_bad = await run(settings | unread, *words.split())

    for status, out, errors in (alone, beside_bad):
        assert (status, said in out) == (0, True), (out, errors)


@pytest.mark.parametrize("words", ["migrate", "key list"])
@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, "REKINDLE_DATABASE_URL: Field required"),
        ({"REKINDLE_DATABASE_URL": "nonsense"}, "postgresql://USER:PASSWORD@HOST"),
        ({"REKINDLE_DATABASE_URL": "postgresql://u:open-sesame@127.0.0.1:1/n"}, "Is it running"),
    ],
)
async def test_a_command_says_in_two_lines_why_it_cannot_use_the_database(
    words: str, settings: dict[str, str], wanted: str
) -> None:
    status, _, errors = await run(settings, *words.split())

    assert (status > 0, wanted in errors) == (True, True), errors
    assert len(errors.splitlines()) <= 2
    assert "open-sesame" not in errors


async def test_a_command_on_a_database_without_tables_says_to_migrate(database_url: str) -> None:
    empty = database_url.replace("/rekindle?", "/postgres?")

    status, _, errors = await key(empty, "list")

    assert (status, "service.main migrate" in errors) == (1, True), errors


async def test_what_is_not_there_is_named(database_url: str) -> None:
    status, _, errors = await key(database_url, "list", "--project", "none")
    assert (status, "No project 'none'" in errors) == (1, True)

    await key(database_url, "create", "--project", "p")
    status, _, errors = await key(database_url, "revoke", "key-none", "--project", "p")
    assert (status, "No API key key-none" in errors) == (1, True)
