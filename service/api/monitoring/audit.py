"""/v1/organization/audit: what exists in the cloud compared with the database.

For operators only: it names the jobs of every project.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from service.api.deps import Now, Operator, PartsDep
from service.api.http.pages import After, clamp_limit, page, require_known_cursor
from service.api.jobs.job_views import money
from service.api.schemas.organization import Audit, Resource
from service.domain.errors import ServiceUnavailable
from service.domain.lifecycle.audit import (
    SCALE_SET,
    AuditedResource,
    AuditStanding,
    hourly_by_standing,
)
from service.operations.monitoring import audit

router = APIRouter(prefix="/organization", tags=["Organization"])
_MAX_LIMIT = 1000
Limit = Annotated[int, Query(description=f"at most {_MAX_LIMIT}")]


@router.get("/audit", operation_id="auditCloudResources")
async def get_audit(
    parts: PartsDep, caller: Operator, now: Now, limit: Limit = 100, after: After = None
) -> Audit:
    """List scale sets and untracked resources by name; ``summary`` counts all of them.

    ``unseen`` says why untracked resources are not known, and is null where they are.
    ``unknown_containers`` counts job containers that the database does not know; null if Blob
    fails.
    """
    if parts.cloud is None:
        raise ServiceUnavailable(
            "This replica has no access to Azure. Retry; another replica may answer."
        )
    result = await audit.run_audit(parts.engine, parts.cloud, parts.store, parts.prices, now)
    resources = result.resources
    remaining = resources
    if after is not None:
        require_known_cursor(None if all(f.name != after for f in resources) else resources, after)
        remaining = [f for f in resources if f.name > after]
    limit = clamp_limit(limit, _MAX_LIMIT)
    unseen = {
        "unseen": result.incomplete_reason or None,
        "unknown_containers": result.unknown_containers,
    }
    summary = _summary(resources) | unseen
    return page(Audit, remaining[: limit + 1], limit, _resource, summary=summary)


def _summary(resources: list[AuditedResource]) -> dict[str, Any]:
    costs = hourly_by_standing(resources)
    groups = {
        standing: {
            _counted_as(standing): sum(f.standing is standing for f in resources),
            "machines": sum(f.machines for f in resources if f.standing is standing),
            "per_hour": money(costs[standing]),
        }
        for standing in costs
    }
    leaks = [f for f in resources if f.leaks]
    unpriced = sum(f.hourly is None for f in leaks)
    return {"currency": "USD", "groups": groups, "leaks": len(leaks), "unpriced_leaks": unpriced}


def _counted_as(standing: AuditStanding) -> str:
    return "resources" if standing is AuditStanding.UNTRACKED else "scale_sets"


def _resource(resource: AuditedResource) -> Resource:
    members: dict[str, Any] = {
        "id": resource.name,
        "object": "scale_set" if resource.kind == SCALE_SET else "resource",
        "type": resource.kind,
        "standing": resource.standing,
        "leaks": resource.leaks,
        "region": resource.region,
        "vm_size": resource.vm_size,
        "attempt": resource.attempt_id or None,
        "job": resource.job_id or None,
        "attempt_state": resource.state or None,
        "phase": resource.phase or None,
        "machines": resource.machines,
        "since": None if resource.since is None else int(resource.since.timestamp()),
        "per_hour": None if resource.hourly is None else money(resource.hourly),
        "per_hour_if": resource.assumed,
    }
    return Resource(**members)
