"""The check that holds answers against the API document finds what is not documented."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from tests.answers import Documented


@pytest.mark.parametrize(
    ("path", "status", "body", "documented"),
    [
        ("/livez", 200, {"status": "ok"}, ""),
        ("/livez", 200, {"status": 1}, "is not of type"),
        ("/livez", 200, {"status": "ok", "mood": "good"}, "Additional properties"),
        ("/livez", 201, {"status": "ok"}, "201 is not documented"),
        ("/v1/files/f", 404, {"detail": "Not Found"}, "default"),
        ("/v1/nowhere", 200, {}, "is in no document"),
    ],
)
async def test_an_answer_that_is_not_documented_is_found(
    path: str, status: int, body: dict[str, Any], documented: str
) -> None:
    app = FastAPI()
    app.add_api_route(path, lambda: JSONResponse(body, status_code=status))
    transport = httpx.ASGITransport(app=Documented(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        response = await http.get(path)

    assert response.status_code == (599 if documented else status)
    assert not documented or documented == "default" or documented in response.text
