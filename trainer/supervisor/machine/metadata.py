"""Client of Azure's instance metadata service: this VM's identity and its eviction notices."""

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Self

import httpx

from trainer.contract import EvictionNotice

INSTANCE_API = "2021-02-01"
EVENTS_API = "2020-07-01"


class MetadataError(Exception):
    """The metadata service did not answer as documented. Retry later."""


@dataclass(frozen=True, kw_only=True)
class VmInstance:
    """This VM's identity."""

    vm_id: str
    name: str
    address: str
    vm_size: str


class Metadata:
    """Client of the metadata service; bypasses proxies: the address is link-local."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(
            base_url=url, headers={"Metadata": "true"}, timeout=10.0, trust_env=False
        )

    async def instance(self) -> VmInstance:
        """Return this VM's identity."""
        data = await self._json("GET", "/metadata/instance", INSTANCE_API)
        try:
            interface = data["network"]["interface"][0]["ipv4"]["ipAddress"][0]
            return VmInstance(
                vm_id=data["compute"]["vmId"],
                name=data["compute"]["name"],
                address=interface["privateIpAddress"],
                vm_size=data["compute"]["vmSize"],
            )
        except (KeyError, IndexError, TypeError) as e:
            raise MetadataError(f"the instance document lacks {e}") from e

    async def eviction(self, name: str, now: float) -> EvictionNotice | None:
        """Return the eviction notice for the VM ``name``, or None."""
        data = await self._json("GET", "/metadata/scheduledevents", EVENTS_API)
        try:
            return find_eviction(data["Events"], name, now)
        except (KeyError, TypeError, ValueError) as e:
            raise MetadataError(f"the events document is not as documented: {e!r}") from e

    async def acknowledge(self, event_id: str) -> None:
        """Tell Azure that it may take the VM now."""
        body = {"StartRequests": [{"EventId": event_id}]}
        await self._json("POST", "/metadata/scheduledevents", EVENTS_API, body)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def _json(self, method: str, path: str, version: str, body: object = None) -> Any:  # noqa: ANN401 - parsed JSON
        try:
            response = await self._http.request(
                method, path, params={"api-version": version}, json=body
            )
            response.raise_for_status()
            return response.json() if method == "GET" else None
        except (httpx.HTTPError, ValueError) as e:
            raise MetadataError(f"{method} {path}: {type(e).__name__} {e}") from e


def find_eviction(events: list[dict[str, Any]], name: str, now: float) -> EvictionNotice | None:
    """Return the first Preempt event for the VM ``name`` as a notice, or None."""
    for event in events:
        if event["EventType"] == "Preempt" and name in event["Resources"]:
            # Blank once the eviction has begun.
            begins = event.get("NotBefore", "")
            return EvictionNotice(
                event_id=event["EventId"],
                not_before=parsedate_to_datetime(begins).timestamp() if begins else 0.0,
                seen_at=now,
            )
    return None
