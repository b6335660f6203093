"""/v1/fine_tuning/jobs: list with filters and order, and live; and /v1/fine_tuning/summary."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from service.api.deps import Db, Now, PartsDep, Reader
from service.api.http import streams
from service.api.http.pages import After, clamp_limit, page, require_known_cursor
from service.api.http.requests import JsonRoute
from service.api.jobs import job_views, live_lists
from service.api.jobs.live_lists import LiveLists
from service.api.schemas.jobs import JobList, JobsSummary, Month, PhaseGroup, Status, Today
from service.db.jobs import job_lists, job_summary
from service.db.jobs import jobs as rows
from service.db.jobs.job_lists import JobFilter, Sort
from service.db.money import project_costs
from service.domain.errors import InvalidRequest
from service.domain.states import OPENAI_STATUS, PHASE_GROUPS, JobState

router = APIRouter(prefix="/fine_tuning", tags=["Fine-tuning"], route_class=JsonRoute)
_MAX_LIMIT = 100
_MAX_SEARCH_LENGTH = 200
Metadata = Annotated[
    str | None,
    Query(description="`metadata[key]=value` filters; `metadata=null`: jobs without metadata."),
]
Statuses = Annotated[list[Status] | None, Query(description="OpenAI's status; repeatable.")]
Phases = Annotated[list[PhaseGroup] | None, Query(description="Group of phases; repeatable.")]
Search = Annotated[
    str,
    Query(
        max_length=_MAX_SEARCH_LENGTH,
        description="Part of the id, the suffix, the model or a metadata value, in any case.",
    ),
]
SortBy = Annotated[Sort, Query(description="`name` is the suffix; equal jobs are newest first.")]


async def parse_filters(
    request: Request,
    metadata: Metadata = None,  # read below with its [key]
    status: Statuses = None,
    phase: Phases = None,
    search: Search = "",
) -> JobFilter:
    """Read the filters of a list of jobs."""
    states = None
    if status is not None or phase is not None:
        states = [
            state
            for state in JobState
            if (status is None or OPENAI_STATUS[state] in status)
            and (phase is None or PHASE_GROUPS[state] in phase)
        ]
    return JobFilter(metadata=_metadata(request), states=states, search=search.strip())


Filters = Annotated[JobFilter, Depends(parse_filters)]


@router.get("/jobs", operation_id="listPaginatedFineTuningJobs")
async def list_jobs(
    db: Db,
    caller: Reader,
    now: Now,
    where: Filters,
    limit: int = 20,
    after: After = None,
    sort: SortBy = Sort.CREATED,
    order: Literal["asc", "desc"] = "desc",
) -> JobList:
    """List jobs, newest first unless `sort` and `order` say otherwise."""
    if after is not None and await rows.find(db, after, caller.project_id) is None:
        require_known_cursor(None, after)
    limit = clamp_limit(limit, _MAX_LIMIT)
    items = await job_lists.page(
        db,
        caller.project_id,
        now,
        after=after,
        limit=limit + 1,
        where=where,
        sort=sort,
        ascending=order == "asc",
    )
    return page(JobList, items, limit, lambda overview: job_views.job_summary(overview, now))


@router.get(
    "/jobs/stream",
    operation_id="streamFineTuningJobs",
    response_class=Response,
    responses=streams.STREAM,
)
async def stream_jobs(
    request: Request, parts: PartsDep, caller: Reader, last_event_id: streams.LastEventId = None
) -> Response:
    """Stream each job of the project that changes, as lists show it, at most once a second."""
    lists: LiveLists = request.app.state.live_lists
    after = live_lists.parse_event_id(last_event_id)
    return streams.stream_response(parts, caller, lists.stream(caller.project_id, after))


@router.get("/summary", operation_id="retrieveFineTuningSummary")
async def get_summary(db: Db, caller: Reader, now: Now) -> JobsSummary:
    """Count the project's jobs, and sum up what they cost now, this month and today (UTC)."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    summary = await job_summary.summarize_project(db, caller.project_id, today)
    groups: dict[PhaseGroup, int] = dict.fromkeys(PHASE_GROUPS.values(), 0)  # type: ignore[arg-type]  # the same words
    for state, count in summary.jobs.items():
        groups[PHASE_GROUPS[state]] += count  # type: ignore[index]  # the same words
    return JobsSummary(
        jobs=sum(groups.values()),
        phases=groups,
        per_hour=job_views.money(summary.per_hour),
        on_demand_per_hour=job_views.money(summary.on_demand_per_hour),
        month=await _month(db, caller.project_id, today.replace(day=1), now),
        today=Today(
            since=int(today.timestamp()),
            evictions=summary.evictions,
            lost_steps=summary.lost_steps,
        ),
        currency="USD",
        as_of=int(now.timestamp()),
    )


async def _month(db: Db, project_id: str, since: datetime, now: datetime) -> Month:
    """Return this month's cost, as `/v1/organization/costs` counts it."""
    width = int((now - since).total_seconds()) + 1
    (month,) = await project_costs.by_bucket(
        db, project_id, since, max(now, since.replace(microsecond=1)), width, now
    )
    return Month(
        since=int(since.timestamp()),
        spent=job_views.money(month.machines + month.storage),
        saved=job_views.money(month.on_demand - month.machines),
    )


def _metadata(request: Request) -> dict[str, str] | None:
    """Return the filter's pairs; None: jobs without metadata. OpenAI's Node client sends ""."""
    query = request.query_params
    if query.get("metadata") in ("null", ""):
        return None
    if "metadata" in query:
        raise InvalidRequest(
            "metadata: write the filter as metadata[key]=value, or metadata=null for jobs "
            "without metadata.",
            param="metadata",
        )
    return {
        name[len("metadata[") : -1]: value
        for name, value in query.items()
        if name.startswith("metadata[") and name.endswith("]")
    }
