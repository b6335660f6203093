"""Which service to talk to, and with which key: options, then environment, then a local stack.

An address and a key come from the same place. A key of OpenAI's that lies in the environment is
never sent to a service that OPENAI_BASE_URL does not name.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rekindle.cli.errors import ExitCode, Trouble

FACTS = "stack.json"
_OUR_KEYS = "rk-"
_HOW = (
    "Start a local stack (rekindle up), or name a service: --url and --key, or "
    "REKINDLE_URL and REKINDLE_API_KEY, or OPENAI_BASE_URL and OPENAI_API_KEY."
)


@dataclass(frozen=True)
class Asked:
    """What the command line says about the service."""

    url: str | None = None
    key: str | None = None
    state: Path | None = None
    project: str | None = None


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A service and a key for it. ``stack`` is there when it is a local one."""

    url: str  # ends in /v1
    key: str
    source: str  # where it was found, for messages
    stack: Path | None = None
    project: str | None = None  # to act in; None: the key's own


def connect(asked: Asked, environment: Mapping[str, str], folder: Path) -> Connection:
    """The service that is meant, or Trouble that says how to name one."""
    stack = find_stack(asked.state, folder)
    local = _read(stack) if stack else {}
    url, source = _address(asked, environment, local)
    key = asked.key or _key(source, environment, url, local)
    if not key:
        raise Trouble(
            f"There is no API key for {url} ({source}).",
            "Give --key, or set REKINDLE_API_KEY.",
            exit_code=ExitCode.NOT_AUTHORISED,
            code="no_api_key",
        )
    own = stack if _based(local.get("api_url", "")) == url else None
    project = _sendable(asked.project)
    return Connection(url=url, key=key, source=source, stack=own, project=project)


def _sendable(project: str | None) -> str | None:
    """As a header; an empty one is a variable that nobody has set, not the key's own project."""
    if project is None or (project.strip() and project.isascii() and project.isprintable()):
        return project
    raise Trouble(
        f"--project {project!r} cannot be sent in a header.",
        "Give its id: rekindle projects",
        exit_code=ExitCode.USAGE,
        code="no_project",
    )


def find_stack(asked: Path | None, folder: Path) -> Path | None:
    """The state folder of the stack that runs, here or in a folder above."""
    if asked is not None:
        if not (asked / FACTS).is_file():
            raise Trouble(
                f"No stack runs on {asked}: it has no {FACTS}.",
                f"Start it: rekindle up --state {asked}",
                exit_code=ExitCode.UNREACHABLE,
                code="no_stack",
            )
        return asked
    return next((state for state in _near(folder) if (state / FACTS).is_file()), None)


def _near(folder: Path) -> Iterator[Path]:
    for parent in (folder, *folder.parents):
        yield parent / ".rekindle"


def _address(
    asked: Asked, environment: Mapping[str, str], local: Mapping[str, str]
) -> tuple[str, str]:
    if asked.url:
        return _based(asked.url), "--url"
    if asked.state is not None:
        return _based(local["api_url"]), "--state"
    for name in ("REKINDLE_URL", "OPENAI_BASE_URL"):
        if environment.get(name):
            return _based(environment[name]), name
    if local:
        return _based(local["api_url"]), "the local stack"
    raise Trouble(
        "No service is named and no local stack runs here.",
        _HOW,
        exit_code=ExitCode.UNREACHABLE,
        code="no_service",
    )


def _key(
    source: str, environment: Mapping[str, str], url: str, local: Mapping[str, str]
) -> str | None:
    if source in ("--state", "the local stack"):
        return local.get("api_key")
    openai = environment.get("OPENAI_API_KEY", "")
    named_by_openai = _based(environment.get("OPENAI_BASE_URL", "")) == url
    if source == "OPENAI_BASE_URL" and openai:
        return openai
    if environment.get("REKINDLE_API_KEY"):
        return environment["REKINDLE_API_KEY"]
    if openai and (named_by_openai or openai.startswith(_OUR_KEYS)):
        return openai
    return local.get("api_key") if _based(local.get("api_url", "")) == url else None


def _based(url: str) -> str:
    """With /v1 at its end, however it was written."""
    bare = url.strip().rstrip("/")
    return bare if not bare or bare.endswith("/v1") else f"{bare}/v1"


def _read(state: Path) -> Mapping[str, str]:
    try:
        facts: dict[str, str] = json.loads((state / FACTS).read_text())
    except (OSError, ValueError) as error:
        raise Trouble(
            f"{state / FACTS} cannot be read: {error}", "Stop the stack and start it again."
        ) from error
    return facts
