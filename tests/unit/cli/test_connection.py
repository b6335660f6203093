import json
from pathlib import Path
from typing import Any

import pytest

from rekindle.cli.connection import ConnectionOptions, find_stack, resolve_connection
from rekindle.cli.errors import CliError, ExitCode

LOCAL = {"api_url": "http://127.0.0.1:8080", "api_key": "rk-local"}


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """Return the state folder of a running local stack."""
    state = tmp_path / ".rekindle"
    state.mkdir()
    (state / "stack.json").write_text(json.dumps(LOCAL))
    return state


def test_a_local_stack_is_found_from_a_folder_below_it(stack: Path, tmp_path: Path) -> None:
    below = tmp_path / "data" / "chats"
    below.mkdir(parents=True)

    connection = resolve_connection(ConnectionOptions(), {}, below)

    assert (connection.url, connection.key, connection.stack) == (
        "http://127.0.0.1:8080/v1",
        "rk-local",
        stack,
    )


OURS = {"REKINDLE_URL": "https://ours", "REKINDLE_API_KEY": "rk-env"}
OPENAI = {"OPENAI_BASE_URL": "https://api.openai.com/v1", "OPENAI_API_KEY": "sk-real"}
MINE = {"REKINDLE_URL": "https://ours", "OPENAI_API_KEY": "rk-mine"}  # where OpenAI's clients look
STACK = ("http://127.0.0.1:8080/v1", "rk-local")


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({"url": "https://other/v1/", "key": "rk-opt"}, OURS, ("https://other/v1", "rk-opt")),
        ({}, OURS, ("https://ours/v1", "rk-env")),
        ({}, MINE, ("https://ours/v1", "rk-mine")),
        ({"state": Path(".rekindle")}, OPENAI, STACK),
        ({"url": "http://127.0.0.1:8080"}, {}, STACK),
    ],
)
def test_an_option_goes_before_the_environment_and_that_before_the_stack(
    stack: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    environment: dict[str, str],
    expected: tuple[str, str],
) -> None:
    monkeypatch.chdir(stack.parent)

    connection = resolve_connection(ConnectionOptions(**options), environment, stack.parent)

    assert (connection.url, connection.key) == expected
    assert (connection.stack is None) == (expected != STACK)


def test_a_key_of_openais_is_never_sent_to_another_service(stack: Path) -> None:
    environment = {"OPENAI_API_KEY": "sk-real"}

    local = resolve_connection(ConnectionOptions(), environment, stack.parent)
    with pytest.raises(CliError) as refused:
        resolve_connection(ConnectionOptions("https://elsewhere"), environment, stack.parent)

    assert local.key == "rk-local"
    assert refused.value.exit_code is ExitCode.NOT_AUTHORISED
    assert "--key" in refused.value.advice


def test_without_any_service_it_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(CliError) as raised:
        resolve_connection(ConnectionOptions(), {}, tmp_path)

    assert raised.value.exit_code is ExitCode.UNREACHABLE
    assert "rekindle up" in raised.value.advice


def test_a_state_folder_without_a_running_stack_is_no_stack(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="No local stack is running"):
        find_stack(tmp_path, tmp_path)


def test_facts_that_cannot_be_read_are_said_so(stack: Path) -> None:
    (stack / "stack.json").write_text("{")

    with pytest.raises(CliError, match=r"Cannot read .*stack\.json"):
        resolve_connection(ConnectionOptions(), {}, stack.parent)
