"""Find the service and the API key: from options, the environment, or a local stack.

Address and key come from the same source. An OpenAI key in the environment is sent only to the
service that OPENAI_BASE_URL names.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rekindle.cli.errors import CliError, ExitCode

STACK_FILE = "stack.json"
_KEY_PREFIX = "rk-"
_ADVICE = (
    "Start a local stack (rekindle up), or specify a service: --url and --key, or "
    "REKINDLE_URL and REKINDLE_API_KEY, or OPENAI_BASE_URL and OPENAI_API_KEY."
)


@dataclass(frozen=True)
class ConnectionOptions:
    """Connection options of the command line."""

    url: str | None = None
    key: str | None = None
    state: Path | None = None
    project: str | None = None


@dataclass(frozen=True, kw_only=True)
class ServiceConnection:
    """A service address and an API key; ``stack`` is the state folder of a local stack."""

    url: str  # ends in /v1
    key: str
    source: str  # origin of the address, for messages
    stack: Path | None = None
    project: str | None = None  # None: the project of the key


def resolve_connection(
    options: ConnectionOptions, environment: Mapping[str, str], folder: Path
) -> ServiceConnection:
    """Return the service and key to use; raise CliError with a remedy if there are none."""
    stack = find_stack(options.state, folder)
    stack_file = _read_stack_file(stack) if stack else {}
    url, source = _resolve_address(options, environment, stack_file)
    key = options.key or _resolve_key(source, environment, url, stack_file)
    if not key:
        raise CliError(
            f"No API key for {url} ({source}).",
            "Pass --key or set REKINDLE_API_KEY.",
            exit_code=ExitCode.NOT_AUTHORISED,
            code="no_api_key",
        )
    own_stack = stack if _with_version(stack_file.get("api_url", "")) == url else None
    project = _valid_project(options.project)
    return ServiceConnection(url=url, key=key, source=source, stack=own_stack, project=project)


def _valid_project(project: str | None) -> str | None:
    """Return the project; raise CliError if a header cannot carry it or it is empty."""
    if project is None or (project.strip() and project.isascii() and project.isprintable()):
        return project
    raise CliError(
        f"--project {project!r} is empty or has characters outside printable ASCII.",
        "Pass the project id; list ids with: rekindle projects",
        exit_code=ExitCode.USAGE,
        code="no_project",
    )


def find_stack(explicit: Path | None, folder: Path) -> Path | None:
    """Return the state folder of a running stack in ``folder`` or a parent; None if none runs."""
    if explicit is not None:
        if not (explicit / STACK_FILE).is_file():
            raise CliError(
                f"No local stack is running on {explicit}: {STACK_FILE} is missing.",
                f"Start one: rekindle up --state {explicit}",
                exit_code=ExitCode.UNREACHABLE,
                code="no_stack",
            )
        return explicit
    return next((state for state in _state_folders(folder) if (state / STACK_FILE).is_file()), None)


def _state_folders(folder: Path) -> Iterator[Path]:
    for parent in (folder, *folder.parents):
        yield parent / ".rekindle"


def _resolve_address(
    options: ConnectionOptions, environment: Mapping[str, str], stack_file: Mapping[str, str]
) -> tuple[str, str]:
    if options.url:
        return _with_version(options.url), "--url"
    if options.state is not None:
        return _with_version(stack_file["api_url"]), "--state"
    for name in ("REKINDLE_URL", "OPENAI_BASE_URL"):
        if environment.get(name):
            return _with_version(environment[name]), name
    if stack_file:
        return _with_version(stack_file["api_url"]), "the local stack"
    raise CliError(
        "No service is specified and no local stack is running here.",
        _ADVICE,
        exit_code=ExitCode.UNREACHABLE,
        code="no_service",
    )


def _resolve_key(
    source: str, environment: Mapping[str, str], url: str, stack_file: Mapping[str, str]
) -> str | None:
    if source in ("--state", "the local stack"):
        return stack_file.get("api_key")
    openai = environment.get("OPENAI_API_KEY", "")
    named_by_openai = _with_version(environment.get("OPENAI_BASE_URL", "")) == url
    if source == "OPENAI_BASE_URL" and openai:
        return openai
    if environment.get("REKINDLE_API_KEY"):
        return environment["REKINDLE_API_KEY"]
    if openai and (named_by_openai or openai.startswith(_KEY_PREFIX)):
        return openai
    return (
        stack_file.get("api_key") if _with_version(stack_file.get("api_url", "")) == url else None
    )


def _with_version(url: str) -> str:
    """Return the address with /v1 at its end."""
    bare = url.strip().rstrip("/")
    return bare if not bare or bare.endswith("/v1") else f"{bare}/v1"


def _read_stack_file(state: Path) -> Mapping[str, str]:
    try:
        facts: dict[str, str] = json.loads((state / STACK_FILE).read_text())
    except (OSError, ValueError) as error:
        raise CliError(
            f"Cannot read {state / STACK_FILE}: {error}", "Restart the local stack."
        ) from error
    return facts
