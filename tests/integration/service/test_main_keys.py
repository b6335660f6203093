"""`python -m service.main key`: the first key of a project, and what else needs only a database."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.db.core import engine as engines
from service.db.core.notify import Listener
from service.domain.errors import InvalidApiKey
from service.operations.projects import keys
from tests.clock import Clock

ROOT = Path(__file__).resolve().parents[3]
# One process for all commands: to start one for each would take half a minute of imports.
RUNNER = """
import contextlib, io, json, os, sys
from service import main

for line in sys.stdin:
    settings, words = json.loads(line)
    os.environ.clear()
    os.environ.update(settings)
    sys.argv = ["service.main", *words]
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = main.main()
        except SystemExit as end:
            status = end.code
    print(json.dumps([status, out.getvalue(), errors.getvalue()]), flush=True)
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Yield a function that runs a command with these settings and no others.

    It returns the exit status, the output and the errors.
    """
    command, pipe = [sys.executable, "-c", RUNNER], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def run_command(settings: dict[str, str], *arguments: str) -> tuple[int, str, str]:
            stdin.write(json.dumps([settings, arguments]) + "\n")
            stdin.flush()
            status, out, errors = json.loads(stdout.readline())
            return status, out, errors

        yield run_command
        stdin.close()


@pytest.fixture
def key(run: Run, database_url: str) -> Run:
    """Return a function that runs `key` with the address of the database alone."""
    return lambda *arguments: run({"REKINDLE_DATABASE_URL": database_url}, "key", *arguments)


async def test_an_operator_makes_lists_and_revokes_keys(
    key: Run, database_url: str, clock: Clock
) -> None:
    arguments = ("--name", "laptop", "--scope", "read", "--days", "30")
    _, secret, _ = key("create", "--project", "p", *arguments)
    status, key_list, _ = key("list", "--project", "p")
    key_id = key_list.split()[0]

    assert status == 0
    assert secret.strip().startswith("rk-")
    assert secret.strip() not in key_list
    assert key_list.rstrip().endswith("never used  laptop")
    assert f"rk-...{secret.strip()[-4:]}  read  made " in key_list
    assert " by key create  expires 20" in key_list

    status, revoked, _ = key("revoke", key_id, "--project", "p")

    assert (status, "0 keys left" in revoked) == (0, True)
    assert (key("list", "--project", "p"))[1] == ""
    engine = engines.make_engine(database_url)
    key_cache = keys.cache(Listener(database_url))
    try:
        with pytest.raises(InvalidApiKey, match="was revoked"):
            await keys.authenticate(engine, key_cache, f"Bearer {secret.strip()}", clock())
    finally:
        await engine.dispose()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("migrate", ""),
        ("key create --project p", "rk-"),
        ("budget --project p", "p"),
        ("quota --project p", "under way of 2"),
        ("quota --project p --max-keys 5", "1 of 5 API keys"),
    ],
)
def test_a_command_on_the_database_needs_its_address_alone(
    run: Run, key: Run, database_url: str, arguments: str, message: str
) -> None:
    settings = {"REKINDLE_DATABASE_URL": database_url, "REKINDLE_PROJECT_MAX_JOBS": "2"}
    key("create", "--project", "p")
    unread = {"REKINDLE_STORAGE": "", "REKINDLE_OFFERINGS": "nonsense", "REKINDLE_CLOUD": "none"}

    alone = run(settings, *arguments.split())
    beside_bad = run(settings | unread, *arguments.split())

    for status, stdout, errors in (alone, beside_bad):
        assert (status, message in stdout) == (0, True), (stdout, errors)


@pytest.mark.parametrize("arguments", ["migrate", "key list"])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "REKINDLE_DATABASE_URL: Field required"),
        ({"REKINDLE_DATABASE_URL": "nonsense"}, "postgresql://USER:PASSWORD@HOST"),
        ({"REKINDLE_DATABASE_URL": "postgresql://u:open-sesame@127.0.0.1:1/n"}, "Is it running"),
    ],
)
def test_a_command_says_in_two_lines_why_it_cannot_use_the_database(
    run: Run, arguments: str, settings: dict[str, str], expected: str
) -> None:
    status, _, errors = run(settings, *arguments.split())

    assert (status > 0, expected in errors) == (True, True), errors
    assert len(errors.splitlines()) <= 2
    assert "open-sesame" not in errors


def test_a_command_on_a_database_without_tables_says_to_migrate(
    run: Run, database_url: str
) -> None:
    empty = {"REKINDLE_DATABASE_URL": database_url.replace("/rekindle?", "/postgres?")}

    status, _, errors = run(empty, "key", "list")

    assert (status, "service.main migrate" in errors) == (1, True), errors


def test_what_is_not_there_is_named(key: Run) -> None:
    status, _, errors = key("list", "--project", "none")
    assert (status, "No project 'none'" in errors) == (1, True)

    key("create", "--project", "p")
    status, _, errors = key("revoke", "key-none", "--project", "p")
    assert (status, "No API key key-none" in errors) == (1, True)
