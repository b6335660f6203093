"""HTTP client of the node protocol: register, heartbeat, directive. The node always calls."""

import math
from collections.abc import Callable
from typing import Self, TypeVar

import httpx

from trainer.contract import (
    Directive,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    NodeConfig,
    Registered,
    Registration,
)

ANSWER_SECONDS = 15.0

M = TypeVar("M", bound=Message)


class ServiceCallError(Exception):
    """The call failed. Go on, and retry later."""


class ServiceUnreachableError(ServiceCallError):
    """No answer, or a server error."""


class NodeUnauthorizedError(ServiceCallError):
    """401, 403 or 404: the service does not know this node. Register again."""


class StaleNodeError(ServiceCallError):
    """409: the node's epoch or generation is stale; see ``code``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AttemptOverError(ServiceCallError):
    """410: the attempt is over. Leave."""


class ServiceClient:
    """HTTP client of the service. It does not retry."""

    def __init__(self, config: NodeConfig, *, long_poll: float) -> None:
        self._config = config
        self._long_poll = long_poll
        traced = {"traceparent": config.traceparent} if config.traceparent else {}
        self._http = httpx.AsyncClient(
            base_url=config.service_url, timeout=ANSWER_SECONDS, headers=traced
        )
        self._registration: Registered | None = None

    async def register(self, registration: Registration) -> Registered:
        """Register this machine; later calls use the node's own token."""
        request = self._http.build_request(
            "POST",
            "/internal/nodes",
            content=registration.to_json(),
            headers=_headers(self._config.bootstrap_token),
        )
        self._registration = _read(Registered.from_json, await self._send(request))
        return self._registration

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Send a heartbeat."""
        registration = self._require_registration()
        request = self._http.build_request(
            "POST",
            f"/internal/nodes/{registration.node_id}/heartbeat",
            content=heartbeat.to_json(),
            headers=_headers(registration.node_token),
        )
        return _read(HeartbeatAnswer.from_json, await self._send(request))

    async def directive(self, after: int) -> Directive:
        """Wait for a directive newer than ``after``; CARRY_ON when there is none."""
        registration = self._require_registration()
        request = self._http.build_request(
            "GET",
            f"/internal/nodes/{registration.node_id}/directive",
            params={
                "after": after,
                "wait": math.ceil(self._long_poll),
                "epoch": registration.epoch,
            },
            headers=_headers(registration.node_token),
            timeout=httpx.Timeout(ANSWER_SECONDS, read=self._long_poll + 10.0),
        )
        return _read(Directive.from_json, await self._send(request))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    def _require_registration(self) -> Registered:
        assert self._registration is not None, "a node registers before it speaks"
        return self._registration

    async def _send(self, request: httpx.Request) -> httpx.Response:
        try:
            response = await self._http.send(request)
        except httpx.HTTPError as e:
            raise ServiceUnreachableError(
                f"{request.url.path}: {type(e).__name__} {e}".strip()
            ) from e
        if response.status_code != httpx.codes.OK:
            raise _error_for(request, response)
        return response


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


def _read(parse: Callable[[bytes], M], response: httpx.Response) -> M:
    try:
        return parse(response.content)
    except ValueError as e:
        raise ServiceUnreachableError(
            f"{response.request.url.path}: answer makes no sense: {e}"
        ) from e


def _error_for(request: httpx.Request, response: httpx.Response) -> ServiceCallError:
    """Return the error for a status other than 200."""
    message = f"{request.url.path}: {response.status_code} {response.text[:500]}"
    match response.status_code:
        case httpx.codes.UNAUTHORIZED | httpx.codes.FORBIDDEN | httpx.codes.NOT_FOUND:
            return NodeUnauthorizedError(message)
        case httpx.codes.CONFLICT:
            return StaleNodeError(_code(response), message)
        case httpx.codes.GONE:
            return AttemptOverError(message)
        case _:
            return ServiceUnreachableError(message)


def _code(response: httpx.Response) -> str:
    """Return ``error.code`` of the answer's body, "" where there is none."""
    try:
        body = response.json()
        return str(body["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""
