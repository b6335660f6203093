"""Is this process alive, and can it do its work?"""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy import text

from service.api.deps import PartsDep

router = APIRouter(tags=["health"])


@router.get("/livez")
async def alive() -> dict[str, str]:
    """200 as long as the process answers at all."""
    return {"status": "ok"}


@router.get("/readyz")
async def ready(parts: PartsDep) -> JSONResponse:
    """200 when the database answers; otherwise the failure handler says 503."""
    async with parts.engine.connect() as conn:
        await conn.execute(text("select 1"))
    return JSONResponse({"status": "ok"})
