"""Is this process alive, and can it do its work?"""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from service.api.deps import PartsDep

router = APIRouter(tags=["health"])


@router.get("/livez")
async def alive() -> dict[str, str]:
    """200 as long as the process answers at all."""
    return {"status": "ok"}


@router.get("/readyz")
async def ready(parts: PartsDep) -> JSONResponse:
    """200 when it can do its work: database, schema, and the loops where they run. Or 503."""
    async with parts.engine.connect() as conn:
        fault = await parts.schema.fault(conn) if parts.schema else ""
    if late := parts.pulse.late() if parts.pulse else []:
        fault = f"These loops hang: {', '.join(late)}. Restart this process; see its logs."
    return JSONResponse({"status": fault or "ok"}, status_code=503 if fault else 200)
