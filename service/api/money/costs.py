"""/v1/fine_tuning/jobs/{id}/cost: spent, forecast, saved; and /metrics, the series."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from service.api.deps import Db, Now, Reader
from service.api.http.pages import clamp_limit
from service.api.jobs import job_views
from service.api.schemas.costs import Figure, JobCost, MetricList, MetricRow
from service.db.jobs import step_metrics
from service.db.jobs.step_metrics import StepRange
from service.domain.errors import InvalidRequest, UnknownCursor
from service.operations.jobs import jobs

router = APIRouter(prefix="/fine_tuning/jobs", tags=["Fine-tuning"])
_MAX_ROWS = 10_000
_LAST_STEP = 2**31 - 1
_DIGITS = len(str(_LAST_STEP))  # int() refuses thousands of them in its own way
Step = Annotated[int, Query(ge=0, le=_LAST_STEP)]

MaxPoints = Annotated[
    int | None,
    Query(ge=1, description="Thin the series out: rows with the lowest and highest `figure`."),
]
ShownFigure = Annotated[
    Figure, Query(description="With `max_points`: whose lowest and highest values are kept.")
]


async def _span(from_step: Step = 0, to_step: Step = _LAST_STEP) -> StepRange:
    return StepRange(from_step=from_step, to_step=to_step)


Span = Annotated[StepRange, Depends(_span)]


@router.get("/{job_id}/cost", operation_id="retrieveFineTuningCost")
async def get_cost(db: Db, caller: Reader, now: Now, job_id: str) -> JobCost:
    """Return the job's cost until now; ``final`` once every machine is gone."""
    overview = await jobs.get_with_facts(db, caller.project_id, job_id, now)
    return JobCost(job=job_id, **job_views.costs(overview, now))


@router.get("/{job_id}/metrics", operation_id="listFineTuningMetrics")
async def get_metrics(
    db: Db,
    caller: Reader,
    job_id: str,
    span: Span,
    max_points: MaxPoints = None,
    figure: ShownFigure = "loss",
    limit: int = _MAX_ROWS,
    after: Annotated[str | None, Query(description="the last step of the page before")] = None,
) -> MetricList:
    """List a row for each training step, or `max_points` rows that keep every spike."""
    await jobs.get(db, caller.project_id, job_id)
    limit = clamp_limit(limit, _MAX_ROWS)
    if max_points is not None and after is not None:
        raise InvalidRequest(
            "max_points gives the whole range at once: leave `after` out.", param="after"
        )
    if max_points is not None:
        point_limit = min(max_points, limit)
        rows = await step_metrics.thinned_series(
            db, job_id, span, max_points=point_limit, figure=figure
        )
    else:
        if after is not None:
            span = replace(span, from_step=max(span.from_step, _step(after) + 1))
        rows = await step_metrics.series(db, job_id, span, limit=limit + 1)
    data = [MetricRow(**row) for row in rows[:limit]]
    return MetricList(data=data, has_more=len(rows) > limit)


def _step(after: str) -> int:
    """Parse the cursor, a step number; the step need not have a row."""
    digits = after.isascii() and after.isdigit() and len(after) <= _DIGITS
    if not (digits and int(after) < _LAST_STEP):
        raise UnknownCursor(
            f"after={after[:80]!r} is no training step. Give the `step` of your last row.",
            param="after",
        )
    return int(after)
