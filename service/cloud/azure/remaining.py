"""Azure's remaining rate limits, gathered from the headers of its answers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import SansIOHTTPPolicy

HEADER = "x-ms-ratelimit-remaining-resource"
_REGION_LIMIT = re.compile(r"Microsoft\.Compute/(\w+?)SubscriptionMaximum;(\d+)")
_current_limits: ContextVar[dict[str, int] | None] = ContextVar("remaining", default=None)


@contextmanager
def gather_remaining() -> Iterator[dict[str, int]]:
    """Gather the lowest remaining limit of each kind of request, from all answers within."""
    limits: dict[str, int] = {}
    token = _current_limits.set(limits)
    try:
        yield limits
    finally:
        _current_limits.reset(token)


def parse_header(header: str) -> dict[str, int]:
    """Return the remaining limits of a subscription and region, without single resources.

    >>> parse_header("Microsoft.Compute/GetVMScaleSetResource;35,"
    ...              "Microsoft.Compute/GetVMScaleSetSubscriptionMaximum;2399")
    {'GetVMScaleSet': 2399}
    """
    return {name: int(limit) for name, limit in _REGION_LIMIT.findall(header)}


class RemainingLimitsPolicy(SansIOHTTPPolicy[Any, Any]):
    """Reads the header of every answer, refusals included."""

    def on_response(
        self,
        request: PipelineRequest[Any],  # noqa: ARG002 - the SDK's
        response: PipelineResponse[Any, Any],
    ) -> None:
        """Read the header; the SDK calls it after each answer."""
        limits = _current_limits.get()
        if limits is None:
            return
        for name, limit in parse_header(response.http_response.headers.get(HEADER) or "").items():
            limits[name] = min(limit, limits.get(name, limit))
