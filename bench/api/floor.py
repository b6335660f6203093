"""Baseline: an app that inserts one row for each POST and does nothing else.

Run it with `python -m bench.api.floor PORT URL`. FastAPI and uvicorn have the settings of the
service. Each of the LANES psycopg connections commits one INSERT of a job-sized row before the
answer is sent.
"""

import asyncio
import json
import sys
from typing import Any

import psycopg
import uvicorn
from fastapi import FastAPI

from bench.api.bare import JOB, Asked

LANES = 4
TABLE = "create table if not exists kept (id bigint generated always as identity, body jsonb)"
ADD = "insert into kept (body) values (%s)"

app = FastAPI()
free: asyncio.Queue[psycopg.AsyncConnection] = asyncio.Queue()


@app.get("/jobs/{job_id}")
async def get(job_id: str) -> dict[str, Any]:
    """Return one job; the first call also opens the database connections."""
    while free.qsize() < LANES:
        conn = await psycopg.AsyncConnection.connect(sys.argv[2], autocommit=True)
        await conn.execute(TABLE)
        free.put_nowait(conn)
    return {"id": job_id}


@app.post("/jobs")
async def create(body: Asked) -> dict[str, Any]:
    """Insert one row, commit it and return a job."""
    conn = await free.get()
    try:
        await conn.execute(ADD, (json.dumps(JOB),))
    finally:
        free.put_nowait(conn)
    return JOB | {"model": body.model}


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_config=None, access_log=False, lifespan="off")
