"""Tables of requests that the emulator refuses, and one runner for all of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx

from tests.emulated.inside import PROVIDERS, Inside

Json = Any


@dataclass(frozen=True)
class Refusal:
    """What is sent, and the answer: status, code, and a part of the error as text."""

    path: str
    body: Json
    code: str
    words: str = ""
    status: int = 400
    method: str = "PUT"
    version: str = "2026-04-01"


async def check(azure: Inside, rows: Iterable[Refusal]) -> None:
    """Send every row, and compare the answers; no refused request may change anything."""
    wrong, before = [], azure.fabric.state.rows()
    for row in rows:
        path = row.path if row.path.startswith("/") else f"{PROVIDERS}/{row.path}"
        content = {"json": row.body} if row.body is not None else {}
        query = dict(httpx.URL(path).params) | {"api-version": row.version}
        response = await azure.arm.request(row.method, path, params=query, **content)
        if not _fits(row, response):
            wrong.append((row, response.status_code, response.text))
    assert not wrong, wrong
    assert azure.fabric.state.rows() == before


def _fits(row: Refusal, response: httpx.Response) -> bool:
    error = response.json().get("error", {}) if response.content else {}
    return (response.status_code, error.get("code")) == (row.status, row.code) and row.words in str(
        error
    )
