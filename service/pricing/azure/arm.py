"""Send POST requests to Azure Resource Manager for which there is no SDK client.

One request goes through the SDK's own pipeline, without its retries.
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError
from azure.core.pipeline.policies import HeadersPolicy, RequestIdPolicy, UserAgentPolicy
from azure.core.rest import AsyncHttpResponse, HttpRequest
from azure.mgmt.core import AsyncARMPipelineClient
from azure.mgmt.core.policies import AsyncARMChallengeAuthenticationPolicy

from service.pricing.market import MarketUnavailable

CALL_SECONDS = 30.0
_REMEDIES = {
    401: "Check the service's identity.",
    403: "Give the service's identity Reader on the subscription; for placement scores Compute "
    "Recommendations Role, for billed costs Cost Management Reader.",
}
Json = dict[str, Any]


class Arm:
    """Client of one endpoint. Takes over ``credential`` and closes it."""

    def __init__(
        self,
        credential: AsyncTokenCredential,
        *,
        base_url: str = "https://management.azure.com",
        ca_path: str = "",  # trust this CA alone, e.g. an emulator's
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._credential = credential
        self._url = base_url
        self._call_seconds = call_seconds
        policies: list[Any] = [
            RequestIdPolicy(),
            HeadersPolicy(),
            UserAgentPolicy("rekindle"),
            AsyncARMChallengeAuthenticationPolicy(credential, f"{base_url}/.default"),
        ]
        self._client: AsyncARMPipelineClient[HttpRequest, AsyncHttpResponse] = (
            AsyncARMPipelineClient(base_url, policies=policies, connection_verify=ca_path or True)
        )

    async def post(self, path: str, version: str, body: Json) -> Json:
        """POST ``body`` and return the answer; ``path`` may be a whole link to another page.

        Raises MarketUnavailable.
        """
        url = path if path.startswith("https://") else f"{self._url}{path}?api-version={version}"
        try:
            async with asyncio.timeout(self._call_seconds):
                response = await self._client.send_request(HttpRequest("POST", url, json=body))
        except TimeoutError as error:
            raise MarketUnavailable(
                f"Azure did not answer within {self._call_seconds:.0f} s: {path}"
            ) from error
        except AzureError as error:
            raise MarketUnavailable(f"Azure cannot be asked: {error.message}") from error
        return _parse_response(response, path)

    async def close(self) -> None:
        """Close the connections and the credential."""
        await self._client.close()
        await self._credential.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _parse_response(response: AsyncHttpResponse, path: str) -> Json:
    if response.status_code != 200:
        message = f"{path} was answered {response.status_code}: {response.text():.300}"
        remedy = _REMEDIES.get(response.status_code, "")
        raise MarketUnavailable(f"{message} {remedy}".rstrip(), retry_after(response.headers))
    try:
        body = response.json()
    except ValueError as error:
        raise MarketUnavailable(f"{path} was answered with no JSON: {error}") from error
    if not isinstance(body, dict):
        raise MarketUnavailable(f"{path} was answered with no object.")
    return body


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the longest wait in seconds that the headers ask for.

    Besides `Retry-After`, some of Azure's services have headers of their own.

    >>> retry_after({"x-ms-ratelimit-microsoft.costmanagement-qpu-retry-after": "9"})
    9.0
    """
    waits = [0.0]
    for name, value in headers.items():
        if name.lower().endswith("retry-after") and value.isdigit():
            waits.append(float(value))
        elif name.lower() == "x-ms-user-quota-resets-after":  # Resource Graph's: hh:mm:ss
            waits.append(_seconds(value))
    return max(waits)


def _seconds(clock: str) -> float:
    parts = clock.split(":")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        return 0.0
    hours, minutes, seconds = map(int, parts)
    return hours * 3600.0 + minutes * 60 + seconds
