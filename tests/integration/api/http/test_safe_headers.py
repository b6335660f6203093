"""Headers that keep a browser from harm, and the console's page and files."""

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from service.api.app import make_app
from service.api.web import PAGES
from tests.answers import document
from tests.served import served
from tests.world import DATASET, World, client

HSTS = "strict-transport-security"


def check(response: httpx.Response) -> None:
    url = str(response.request.url)
    assert response.headers["x-content-type-options"] == "nosniff", url
    assert response.headers["cache-control"] == "no-store", url
    assert "default-src 'none'" in response.headers["content-security-policy"], url
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"], url
    assert response.headers["referrer-policy"] == "no-referrer", url
    assert response.headers.get_list("x-content-type-options") == ["nosniff"], url


async def test_every_answer_has_security_headers(world: World) -> None:
    job = (await world.submit())["id"]
    for path, operations in document()["paths"].items():
        for method in operations:
            check(await world.http.request(method, re.sub(r"\{[^}]*\}", "none", path)))
    for path in ("/openapi.json", "/docs", "/v1/nothing", "/", f"/v1/fine_tuning/jobs/{job}"):
        check(await world.call("GET", path))
        check(await world.call("DELETE", path))
    page = await world.call("GET", f"/v1/fine_tuning/jobs/{job}")
    head = {"if-none-match": page.headers["etag"]}
    not_modified = await world.call("GET", f"/v1/fine_tuning/jobs/{job}", headers=head)
    assert not_modified.status_code == 304
    check(not_modified)


async def test_an_answer_about_a_bug_of_ours_has_them_and_an_id_to_report(world: World) -> None:
    def broken() -> None:
        raise AssertionError("a bug")

    async with world.beside(now=broken) as replica:
        response = await replica.call("GET", "/v1/files", headers={"x-request-id": "mine-7"})

    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
    assert response.headers["x-request-id"] == "mine-7"
    assert "a bug" not in response.text
    check(response)


@pytest.mark.parametrize(("scheme", "has_hsts"), [("https", True), ("http", False)])
async def test_hsts_is_sent_over_tls_only(world: World, scheme: str, has_hsts: bool) -> None:
    async with served(make_app(world.parts)) as url, httpx.AsyncClient() as http:
        response = await http.get(f"{url}/livez", headers={"x-forwarded-proto": scheme})

    assert (HSTS in response.headers) is has_hsts


async def test_the_page_of_the_api_runs_its_own_scripts_alone(world: World) -> None:
    page = await world.http.get("/docs")
    policy = dict(
        directive.strip().split(" ", 1)
        for directive in page.headers["content-security-policy"].split(";")
    )
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in page.headers["content-security-policy"]
    assert "style=" not in page.text
    assert not re.search(r"\son\w+=", page.text)
    assert "https://" not in page.text, "it loads nothing from another host"
    for url in (loaded := re.findall(r'(?:src|href)="([^"]+)"', page.text)):
        assert (await world.http.get(f"/{url}")).status_code == 200
    assert loaded
    assets = await world.http.get("/docs/assets/swagger-ui-bundle.js")
    assert "no-store" not in assets.headers.get("cache-control", "")
    assert assets.headers["x-content-type-options"] == "nosniff"


async def test_a_file_is_saved_and_never_shown_whatever_its_name(world: World) -> None:
    name = 'Größe".html\r\nset-cookie: a=b'.replace("\r\n", " ")
    uploaded = await world.call(
        "POST", "/v1/files", files={"file": (name, DATASET)}, data={"purpose": "fine-tune"}
    )
    response = await world.call("GET", f"/v1/files/{uploaded.json()['id']}/content")

    disposition = response.headers["content-disposition"]
    assert disposition.startswith("attachment; filename*=UTF-8''Gr%C3%B6%C3%9Fe")
    assert re.fullmatch(r"[\w%.*=;' ~-]+", disposition)
    assert response.headers["content-type"] == "application/octet-stream"
    check(response)


SCRIPT = "console.log(1);" * 200


@pytest.fixture
async def http(world: World, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a service with a built console."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>Rekindle</title>")
    (tmp_path / "assets" / "index-1a2b.js").write_text(SCRIPT)
    (tmp_path / "icon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    async with client(make_app(replace(world.parts, web=tmp_path))) as http_client:
        yield http_client


async def test_every_address_of_the_router_is_the_page(http: httpx.AsyncClient) -> None:
    for path in ("/", "/jobs/ftjob-1", *(f"/{page}" for page in PAGES)):
        response = await http.get(path)
        assert response.status_code == 200, path
        assert response.headers["content-type"].startswith("text/html")
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["content-security-policy"].startswith("default-src 'self'; ")
        assert response.headers["x-content-type-options"] == "nosniff"

    tag = (await http.get("/")).headers["etag"]
    not_modified = await http.get("/", headers={"if-none-match": tag})
    assert not_modified.status_code == 304


async def test_files_with_a_hash_in_their_name_are_kept(http: httpx.AsyncClient) -> None:
    response = await http.get("/assets/index-1a2b.js", headers={"accept-encoding": "gzip"})

    assert response.text == SCRIPT
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "javascript" in response.headers["content-type"]
    assert (await http.get("/icon.svg")).headers["content-type"] == "image/svg+xml"


async def test_no_other_path_or_folder_is_served(http: httpx.AsyncClient, tmp_path: Path) -> None:
    (tmp_path.parent / "secret").write_text("treasure")

    for path in ("/v1/nothing", "/nothing", "/chat/completions", "/assets/no.js"):
        response = await http.get(path)
        assert response.status_code == 404, path
        assert "message" in response.json()["error"]
    for path in ("/../secret", "/assets/../index.html", "/assets/%2e%2e/x"):
        assert "treasure" not in (await http.get(path)).text, path


async def test_without_a_build_the_page_says_how_to_build_it(world: World) -> None:
    response = await world.http.get("/")

    assert response.status_code == 404
    assert "npm run build" in response.text
    assert (await world.http.get("/livez")).json() == {"status": "ok"}
