"""The emulator's own ARM, called from within: a resource is deployed as a client would put it.

So whatever has a route can be deployed, and roles, faults and rules are the same for both.
"""

from typing import Any

import httpx
from starlette.types import ASGIApp

from emulator.core.errors import ArmError
from emulator.deployments.expressions import NotYet

Json = Any


class MissingAnswer(Exception):
    """An expression needs an answer that was not fetched yet: fetch it, then evaluate again."""

    def __init__(self, path: str, version: str) -> None:
        super().__init__(path)
        self.key = (path.lower(), version)
        self.path = path


class Calls:
    """Requests in the name of the principal that deploys."""

    def __init__(self, app: ASGIApp, call: dict[str, str]) -> None:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        headers = {"User-Agent": "deployment"}
        if call["authorization"]:
            headers["Authorization"] = call["authorization"]
        self._client = httpx.AsyncClient(
            transport=transport, base_url=call["base"], headers=headers
        )

    async def request(
        self, method: str, path: str, version: str = "", body: Json = None
    ) -> httpx.Response:
        """Send one request; a whole URL may be given for a path."""
        query = {"api-version": version} if version else None
        return await self._client.request(method, path, params=query, json=body)


class Answers:
    """What expressions asked so far, as `scopes.Cloud`."""

    def __init__(self, calls: Calls, missing: set[str]) -> None:
        self._calls = calls
        self._missing = missing  # ids of resources that are still to be deployed
        self._responses: dict[tuple[str, str], httpx.Response] = {}

    def show(self, resource_id: str, version: str) -> dict[str, Json]:
        """Return a resource as ARM shows it; raise MissingAnswer if it must be fetched first."""
        if resource_id.lower() in self._missing:
            raise NotYet(resource_id)
        missing_answer = MissingAnswer(resource_id, version)
        if (answer := self._responses.get(missing_answer.key)) is None:
            raise missing_answer
        if answer.status_code >= 400:
            raise refusal(answer)
        return dict(answer.json())

    async def fetch(self, missing_answer: MissingAnswer) -> None:
        """Ask for what an expression needs."""
        self._responses[missing_answer.key] = await self._calls.request(
            "GET", missing_answer.path, missing_answer.key[1]
        )


def refusal(answer: httpx.Response) -> ArmError:
    """Return the error in an answer."""
    try:
        error = answer.json()["error"]
        return ArmError(answer.status_code, error["code"], error["message"])
    except (ValueError, KeyError, TypeError):
        return ArmError(
            answer.status_code,
            "InternalServerError",
            "Encountered internal server error. Diagnostic information: "
            f"HTTP status {answer.status_code} without a reason.",
        )
