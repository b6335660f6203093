"""Baseline: FastAPI and uvicorn with the settings of the service, and no work behind them.

Run it with `python -m bench.api.bare PORT`. A GET returns a body of the size of a job. A POST
validates a body with the members of a job request.
"""

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

JOB = {f"member_{n}": {"value": n, "text": "x" * 40} for n in range(60)}

app = FastAPI()


class Asked(BaseModel):
    """Request body with the members of a job request."""

    model: str
    training_file: str
    seed: int | None = None
    hyperparameters: dict[str, int | float | str] = {}
    infrastructure: dict[str, int] = {}


@app.get("/jobs/{job_id}")
async def get(job_id: str) -> dict[str, Any]:
    """Return one job."""
    return JOB | {"id": job_id}


@app.post("/jobs")
async def create(body: Asked) -> dict[str, Any]:
    """Validate the request and return a job."""
    return JOB | {"model": body.model}


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_config=None, access_log=False, lifespan="off")
