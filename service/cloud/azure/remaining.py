"""Azure's remaining requests, gathered from the headers of its answers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import SansIOHTTPPolicy

HEADER = "x-ms-ratelimit-remaining-resource"
_REGION_LIMIT = re.compile(r"Microsoft\.Compute/(\w+?)SubscriptionMaximum;(\d+)")
_current_remaining: ContextVar[dict[str, int] | None] = ContextVar("remaining", default=None)


@contextmanager
def gather_remaining() -> Iterator[dict[str, int]]:
    """Gather the fewest remaining requests of each kind, from all answers within."""
    remaining: dict[str, int] = {}
    token = _current_remaining.set(remaining)
    try:
        yield remaining
    finally:
        _current_remaining.reset(token)


def parse_header(header: str) -> dict[str, int]:
    """Return the remaining requests of a subscription and region, without single resources.

    >>> parse_header("Microsoft.Compute/GetVMScaleSetResource;35,"
    ...              "Microsoft.Compute/GetVMScaleSetSubscriptionMaximum;2399")
    {'GetVMScaleSet': 2399}
    """
    return {name: int(count) for name, count in _REGION_LIMIT.findall(header)}


class RemainingLimitsPolicy(SansIOHTTPPolicy[Any, Any]):
    """Reads the header of every answer, refusals included."""

    def on_response(
        self,
        request: PipelineRequest[Any],  # noqa: ARG002 - the SDK's
        response: PipelineResponse[Any, Any],
    ) -> None:
        """Read the header; the SDK calls it after each answer."""
        remaining = _current_remaining.get()
        if remaining is None:
            return
        for name, count in parse_header(response.http_response.headers.get(HEADER) or "").items():
            remaining[name] = min(count, remaining.get(name, count))
