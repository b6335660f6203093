"""/v1/organization/audit: what exists in the cloud compared with the database.

For operators only: it names the jobs of every project.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from service.api.deps import Now, Operator, PartsDep
from service.api.http.pages import After, clamp, page, require_known_cursor
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
_MOST = 1000
Limit = Annotated[int, Query(description=f"at most {_MOST}")]


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
    taken = await audit.run_audit(parts.engine, parts.cloud, parts.store, parts.prices, now)
    found = taken.found
    rest = found
    if after is not None:
        require_known_cursor(None if all(f.name != after for f in found) else found, after)
        rest = [f for f in found if f.name > after]
    limit = clamp(limit, _MOST)
    unseen = {"unseen": taken.unseen or None, "unknown_containers": taken.unknown_containers}
    summary = _summary(found) | unseen
    return page(Audit, rest[: limit + 1], limit, _resource, summary=summary)


def _summary(found: list[AuditedResource]) -> dict[str, Any]:
    costs = hourly_by_standing(found)
    groups = {
        standing: {
            _counted_as(standing): sum(f.standing is standing for f in found),
            "machines": sum(f.machines for f in found if f.standing is standing),
            "per_hour": money(costs[standing]),
        }
        for standing in costs
    }
    leaks = [f for f in found if f.leaks]
    unpriced = sum(f.hourly is None for f in leaks)
    return {"currency": "USD", "groups": groups, "leaks": len(leaks), "unpriced_leaks": unpriced}


def _counted_as(standing: AuditStanding) -> str:
    return "resources" if standing is AuditStanding.UNTRACKED else "scale_sets"


def _resource(found: AuditedResource) -> Resource:
    members: dict[str, Any] = {
        "id": found.name,
        "object": "scale_set" if found.kind == SCALE_SET else "resource",
        "type": found.kind,
        "standing": found.standing,
        "leaks": found.leaks,
        "region": found.region,
        "vm_size": found.vm_size,
        "attempt": found.attempt_id or None,
        "job": found.job_id or None,
        "attempt_state": found.state or None,
        "phase": found.phase or None,
        "machines": found.machines,
        "since": None if found.since is None else int(found.since.timestamp()),
        "per_hour": None if found.hourly is None else money(found.hourly),
        "per_hour_if": found.assumed,
    }
    return Resource(**members)
