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


def check(answer: httpx.Response) -> None:
    where = str(answer.request.url)
    assert answer.headers["x-content-type-options"] == "nosniff", where
    assert answer.headers["cache-control"] == "no-store", where
    assert "default-src 'none'" in answer.headers["content-security-policy"], where
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], where
    assert answer.headers["referrer-policy"] == "no-referrer", where
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"], where


async def test_every_answer_has_security_headers(world: World) -> None:
    job = (await world.submit())["id"]
    for path, operations in document()["paths"].items():
        for method in operations:
            check(await world.http.request(method, re.sub(r"\{[^}]*\}", "none", path)))
    for path in ("/openapi.json", "/docs", "/v1/nothing", "/", f"/v1/fine_tuning/jobs/{job}"):
        check(await world.call("GET", path))
        check(await world.call("DELETE", path))
    shown = await world.call("GET", f"/v1/fine_tuning/jobs/{job}")
    head = {"if-none-match": shown.headers["etag"]}
    unchanged = await world.call("GET", f"/v1/fine_tuning/jobs/{job}", headers=head)
    assert unchanged.status_code == 304
    check(unchanged)


async def test_an_answer_about_a_bug_of_ours_has_them_and_an_id_to_report(world: World) -> None:
    def broken() -> None:
        raise AssertionError("a bug")

    async with world.beside(now=broken) as other:
        answer = await other.call("GET", "/v1/files", headers={"x-request-id": "mine-7"})

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert answer.headers["x-request-id"] == "mine-7"
    assert "a bug" not in answer.text
    check(answer)


@pytest.mark.parametrize(("scheme", "told"), [("https", True), ("http", False)])
async def test_hsts_is_sent_over_tls_only(world: World, scheme: str, told: bool) -> None:
    async with served(make_app(world.parts)) as url, httpx.AsyncClient() as http:
        answer = await http.get(f"{url}/livez", headers={"x-forwarded-proto": scheme})

    assert (HSTS in answer.headers) is told


async def test_the_page_of_the_api_runs_its_own_scripts_alone(world: World) -> None:
    page = await world.http.get("/docs")
    policy = dict(
        part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";")
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
    sent = await world.call(
        "POST", "/v1/files", files={"file": (name, DATASET)}, data={"purpose": "fine-tune"}
    )
    answer = await world.call("GET", f"/v1/files/{sent.json()['id']}/content")

    disposition = answer.headers["content-disposition"]
    assert disposition.startswith("attachment; filename*=UTF-8''Gr%C3%B6%C3%9Fe")
    assert re.fullmatch(r"[\w%.*=;' ~-]+", disposition)
    assert answer.headers["content-type"] == "application/octet-stream"
    check(answer)


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
