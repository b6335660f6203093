"""`python -m bench.api.bare PORT`: FastAPI and uvicorn as the service has them, and nothing behind.

A GET answers a body as large as a job's, a POST checks a body of the same members.
"""

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

JOB = {f"member_{n}": {"value": n, "text": "x" * 40} for n in range(60)}

app = FastAPI()


class Asked(BaseModel):
    """As much as a job's request."""

    model: str
    training_file: str
    seed: int | None = None
    hyperparameters: dict[str, int | float | str] = {}
    infrastructure: dict[str, int] = {}


@app.get("/jobs/{job_id}")
async def get(job_id: str) -> dict[str, Any]:
    """One job."""
    return JOB | {"id": job_id}


@app.post("/jobs")
async def create(asked: Asked) -> dict[str, Any]:
    """A job."""
    return JOB | {"model": asked.model}


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_config=None, access_log=False, lifespan="off")
