"""Headers of answers that keep a browser, and what lies between, from harm."""

import base64
import hashlib
import re

import httpx
import pytest

from service.api.app import make_app
from tests.answers import document
from tests.served import served
from tests.world import DATASET, World

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
