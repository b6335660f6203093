"""The console's page and files, and that the API's answers are as they were."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from service.api.app import make_app
from service.api.web import PAGES
from tests.world import World, client

SCRIPT = "console.log(1);" * 200


@pytest.fixture
async def http(world: World, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a service with a built console."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>Rekindle</title>")
    (tmp_path / "assets" / "index-1a2b.js").write_text(SCRIPT)
    (tmp_path / "icon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    async with client(make_app(replace(world.parts, web=tmp_path))) as made:
        yield made


async def test_every_address_of_the_router_is_the_page(http: httpx.AsyncClient) -> None:
    for path in ("/", "/jobs/ftjob-1", *(f"/{page}" for page in PAGES)):
        answer = await http.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"].startswith("text/html")
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
        assert answer.headers["x-content-type-options"] == "nosniff"

    tag = (await http.get("/")).headers["etag"]
    again = await http.get("/", headers={"if-none-match": tag})
    assert again.status_code == 304


async def test_files_with_a_hash_in_their_name_are_kept(http: httpx.AsyncClient) -> None:
    answer = await http.get("/assets/index-1a2b.js", headers={"accept-encoding": "gzip"})

    assert answer.text == SCRIPT
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "javascript" in answer.headers["content-type"]
    assert (await http.get("/icon.svg")).headers["content-type"] == "image/svg+xml"


async def test_no_other_path_or_folder_is_served(http: httpx.AsyncClient, tmp_path: Path) -> None:
    (tmp_path.parent / "secret").write_text("treasure")

    for path in ("/v1/nothing", "/nothing", "/chat/completions", "/assets/no.js"):
        answer = await http.get(path)
        assert answer.status_code == 404, path
        assert "message" in answer.json()["error"]
    for path in ("/../secret", "/assets/../index.html", "/assets/%2e%2e/x"):
        assert "treasure" not in (await http.get(path)).text, path


async def test_without_a_build_the_page_says_how_to_build_it(world: World) -> None:
    answer = await world.http.get("/")

    assert answer.status_code == 404
    assert "npm run build" in answer.text
    assert (await world.http.get("/livez")).json() == {"status": "ok"}
