import json
from pathlib import Path

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

    found = resolve_connection(ConnectionOptions(), {}, below)

    assert (found.url, found.key, found.stack) == ("http://127.0.0.1:8080/v1", "rk-local", stack)


def test_an_option_goes_before_the_environment_and_that_before_the_stack(stack: Path) -> None:
    environment = {"REKINDLE_URL": "https://ours", "REKINDLE_API_KEY": "rk-env"}

    by_option = resolve_connection(
        ConnectionOptions("https://other/v1/", "rk-opt"), environment, stack.parent
    )
    by_environment = resolve_connection(ConnectionOptions(), environment, stack.parent)

    assert (by_option.url, by_option.key) == ("https://other/v1", "rk-opt")
    assert (by_environment.url, by_environment.key) == ("https://ours/v1", "rk-env")
    assert by_environment.stack is None


def test_a_named_state_folder_goes_before_the_environment(stack: Path) -> None:
    environment = {"OPENAI_BASE_URL": "https://api.openai.com/v1", "OPENAI_API_KEY": "sk-real"}

    found = resolve_connection(ConnectionOptions(state=stack), environment, stack.parent)

    assert (found.url, found.key) == ("http://127.0.0.1:8080/v1", "rk-local")


def test_a_key_of_openais_is_never_sent_to_another_service(stack: Path) -> None:
    environment = {"OPENAI_API_KEY": "sk-real"}

    local = resolve_connection(ConnectionOptions(), environment, stack.parent)
    with pytest.raises(CliError) as refused:
        resolve_connection(ConnectionOptions("https://elsewhere"), environment, stack.parent)

    assert local.key == "rk-local"
    assert refused.value.exit_code is ExitCode.NOT_AUTHORISED
    assert "--key" in refused.value.advice


def test_a_key_of_ours_may_lie_where_openais_clients_look_for_it(tmp_path: Path) -> None:
    environment = {"REKINDLE_URL": "https://ours", "OPENAI_API_KEY": "rk-mine"}

    assert resolve_connection(ConnectionOptions(), environment, tmp_path).key == "rk-mine"


def test_the_address_of_the_local_stack_needs_no_key(stack: Path) -> None:
    assert (
        resolve_connection(ConnectionOptions("http://127.0.0.1:8080"), {}, stack.parent).key
        == "rk-local"
    )


def test_without_any_service_it_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(CliError) as lost:
        resolve_connection(ConnectionOptions(), {}, tmp_path)

    assert lost.value.exit_code is ExitCode.UNREACHABLE
    assert "rekindle up" in lost.value.advice


def test_a_state_folder_without_a_running_stack_is_no_stack(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="No local stack is running"):
        find_stack(tmp_path, tmp_path)


def test_facts_that_cannot_be_read_are_said_so(stack: Path) -> None:
    (stack / "stack.json").write_text("{")

    with pytest.raises(CliError, match=r"Cannot read .*stack\.json"):
        resolve_connection(ConnectionOptions(), {}, stack.parent)
