"""POST /v1/fine_tuning/jobs/{id}/calendar: what it would have cost, hour by hour."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from contract.strict import Strict
from service.api.deps import Now, PartsDep, Reader
from service.api.requests import JsonRequest, JsonRoute
from service.api.schemas.simulations import Calendar
from service.domain.capacity_calendar import CapacityCalendar, Cell
from service.domain.cost import CURRENCY
from service.domain.errors import InvalidRequest
from service.domain.plan import Plan
from service.domain.terms import Terms
from service.domain.traces import BadTrace, Trace
from service.operations import calendars, jobs
from service.operations.calendars import Record, Recorded


class _TracesRequest(JsonRequest):
    longest_body = 8 * 1024 * 1024


class _TracesRoute(JsonRoute):
    request_class = _TracesRequest


router = APIRouter(prefix="/fine_tuning/jobs", tags=["Simulations"], route_class=_TracesRoute)
_HOURS = 24 * 365
_ONE_AT_A_TIME = asyncio.Semaphore(1)  # it is some seconds of computing
Named = Annotated[dict[str, dict[str, Any]], Field(min_length=1, max_length=16)]


class CalendarRequest(Strict):
    """In whose capacity, and by when; its own deadline counts if on demand may keep it."""

    deadline_hours: Annotated[float, Field(gt=0, le=_HOURS)] | None = None  # None: its own
    weeks: Annotated[int, Field(ge=1, le=12)] = 4
    traces: Named | None = None  # by name; None: what the project's attempts have seen


@router.post("/{job_id}/calendar", operation_id="createCapacityCalendar")
async def take(
    parts: PartsDep, caller: Reader, now: Now, job_id: str, body: CalendarRequest
) -> Calendar:
    """By the policy that would run it. Hours are UTC. Nothing is stored."""
    brought = None if body.traces is None else await asyncio.to_thread(_traces, body.traces)
    async with parts.reading.connect() as conn:  # not held while it computes
        job = await jobs.get(conn, caller.project_id, job_id)
        options = Plan.from_dict(job.plan).options
        known: Record | Recorded
        if brought is None:
            known = await calendars.recorded(conn, caller.project_id, options, body.weeks, now)
        else:
            known = calendars.given(options, brought)
    deadline = Terms.from_dict(job.terms).kept_seconds(job.created_at, body.deadline_hours)
    async with _ONE_AT_A_TIME:
        found = await asyncio.to_thread(calendars.lived, known, deadline)
    return Calendar(job=job_id, **_shown(found))


def _traces(given: dict[str, dict[str, Any]]) -> dict[str, Trace]:
    found = {}
    for name, document in given.items():
        try:
            found[name] = Trace.from_dict(document)
        except BadTrace as error:
            raise InvalidRequest(f"{name}: {error}", param="traces") from error
    return found


def _shown(found: CapacityCalendar) -> dict[str, Any]:
    return {
        "since": int(found.begins.timestamp()),
        "until": int(found.ends.timestamp()),
        "places": list(found.places),
        "seen_percent": round(100 * found.seen_share, 1),
        "lives": found.lives,
        "cut": found.cut or None,
        "enough": not found.doubt,
        "doubt": found.doubt or None,
        "currency": CURRENCY,
        "whole": None if found.whole is None else _cell(found.whole),
        "hours": [{"hour": hour} | _cell(cell) for hour, cell in found.hours.items()],
        "cells": [slot._asdict() | _cell(cell) for slot, cell in found.cells.items()],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    """Money as strings; null where no life came to its end."""
    return {
        "begins": cell.begins,
        "dollars": None if cell.dollars is None else f"{cell.dollars:.2f}",
        "hours_taken": None if cell.hours is None else round(cell.hours, 2),
        "in_time_percent": None if cell.in_time_pct is None else round(cell.in_time_pct, 1),
        "unfinished_percent": round(cell.unfinished_pct, 1),
    }
