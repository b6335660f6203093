"""Liveness and readiness of this process."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from service.api.deps import PartsDep
from service.api.schemas.base import Answer, ErrorResponse
from service.db.core import database_health


class Health(Answer):
    """`ok`, or what is wrong and what to do."""

    status: str


router = APIRouter(tags=["Health"])


@router.get("/livez", operation_id="livez")
async def alive() -> Health:
    """Answer 200 as long as the process answers at all."""
    return Health(status="ok")


@router.get(
    "/readyz",
    operation_id="readyz",
    response_model=Health,
    responses={503: {"model": Health | ErrorResponse, "description": "It cannot do its work."}},
)
async def ready(parts: PartsDep) -> JSONResponse:
    """Answer 200 if the process can do its work, else 503."""
    async with parts.engine.connect() as conn:
        fault = await database_health.find_fault(conn, parts.wall_clock)
        if not fault and parts.schema:
            fault = await parts.schema.fault(conn)
    if late := parts.liveness.late_loops() if parts.liveness else []:
        names = ", ".join(late)
        fault = f"These loops hang or fail: {names}. See the log, then restart the process."
    return JSONResponse({"status": fault or "ok"}, status_code=503 if fault else 200)
