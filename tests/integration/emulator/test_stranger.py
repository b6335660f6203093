"""A stranger at the emulator's ports: whatever comes over the wire, it answers, and goes on."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.emulated.process import SUBSCRIPTION, TENANT, Emulator

GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g"
SETS = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets"
PATHS = [
    "/",
    "/%00",
    "/_emulator/%00",
    "/_emulator/evict",
    "/metadata/endpoints",
    "/msi/token",
    "/vm/%00/metadata/instance",
    "/vm/nobody/metadata/scheduledevents",
    "/x/oauth2/v2.0/token",
    "/api/retail/prices?$filter=%00",
    "/api/retail/prices?$filter=" + "(" * 3000,
    f"{GROUP}?api-version=2022-09-01",
    f"{GROUP}%00?api-version=2022-09-01",
    f"{SETS}?api-version=2026-04-01",
    f"{SETS}/%00?api-version=2026-04-01",
    f"{SETS}/%F0%9F%92%A5%E2%80%AE?api-version=2026-04-01",
    f"{SETS}/{'n' * 30_000}?api-version=2026-04-01",
    f"{SETS}/n?api-version=2026-04-01&$expand=%ff%fe",
    f"{GROUP.upper()}?API-VERSION=2022-09-01",
    "/a" + "//" * 5000,
    "/../../etc/passwd",
    "/subscriptions/",
    "/providers/Microsoft.ResourceGraph/resources?api-version=2024-04-01",
]
METHODS = ["GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE", "BREW"]
BODIES = [b"", b"{", b'"\\ud800"', b'{"location": ["\\u0000"], "kind": {}, "vm": []}', b"\x00\xff"]
TOKENS = [
    "",
    "Bearer",
    "Bearer a.b.c",
    "Bearer \xff\xfe",
    "Basic bWU6YW55",
    "Bearer " + "x" * 20_000,
]
RAW = [
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET http://elsewhere/ HTTP/1.1\r\nHost: elsewhere\r\n\r\n",
    b"CONNECT localhost:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /_emulator/evict HTTP/1.1\r\nHost: x\r\nContent-Length: no\r\n\r\n",
    b"POST /_emulator/evict HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /_emulator/evict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nHost: " + b"h" * 100_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01 hello \x00\r\n\r\n",
]


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("stranger")
    with (folder / "console").open("w") as console:
        running = Emulator(folder / "azure", "--hollow", console=console)
        yield running
        running.stop()
    console_lines = set((folder / "console").read_text().splitlines())
    assert console_lines <= {"WARNING:  Invalid HTTP request received."}


@pytest.mark.parametrize("method", METHODS)
async def test_odd_requests_on_connections_that_live_on(emulator: Emulator, method: str) -> None:
    headers = await _signed_in(emulator)

    async with _client(emulator.arm_url, emulator) as arm, _client(emulator.metadata_url) as vm:
        for path in PATHS:
            for client in (arm, vm):
                response = await client.request(method, path, headers=headers)
                assert response.status_code < 500, (path, response.text)
                assert not path.startswith("/sub") or response.headers["x-ms-request-id"]


@pytest.mark.parametrize("body", BODIES, ids=repr)
async def test_odd_bodies_at_every_call(emulator: Emulator, body: bytes) -> None:
    headers = await _signed_in(emulator)

    async with _client(emulator.arm_url, emulator) as arm:
        for path in PATHS:
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                response = await arm.request(method, path, content=body, headers=headers)
                assert response.status_code < 500, (method, path, response.text)


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: repr(token[:16]))
async def test_whoever_has_no_token_of_ours_is_not_let_in(emulator: Emulator, token: str) -> None:
    async with _client(emulator.arm_url, emulator) as arm:
        response = await arm.get(
            f"{GROUP}?api-version=2022-09-01", headers={b"Authorization": token.encode("latin-1")}
        )

    assert response.status_code == 401
    assert "error" in response.json()


@pytest.mark.parametrize("raw", RAW, ids=lambda raw: repr(raw[:40]))
async def test_what_is_hardly_http(emulator: Emulator, raw: bytes) -> None:
    response = await asyncio.to_thread(_say, emulator.metadata_url, raw)

    assert not response or int(response.split()[1]) < 500


async def test_two_hundred_clients_at_once(emulator: Emulator) -> None:
    headers = await _signed_in(emulator)

    async def use_group(number: int) -> set[int]:
        async with _client(emulator.arm_url, emulator) as arm:
            group = f"{GROUP}-{number}?api-version=2022-09-01"
            created = await arm.put(group, json={"location": "eastus"}, headers=headers)
            invalid = await arm.put(group, content=b"{", headers=headers)
            response = await arm.get(group, headers=headers)
            return {created.status_code // 100, invalid.status_code, response.status_code}

    assert set().union(*await asyncio.gather(*map(use_group, range(200)))) == {2, 200, 400}


async def test_a_body_that_never_ends(emulator: Emulator) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    async with _client(emulator.metadata_url) as client:
        try:
            is_refused = (
                await client.post("/_emulator/evict", content=endless())
            ).status_code == 413
        except (httpx.ReadError, httpx.WriteError):
            is_refused = True  # the line was closed before the answer was read

    assert is_refused


def _client(url: str, emulator: Emulator | None = None) -> httpx.AsyncClient:
    trusted = ssl.create_default_context(cafile=emulator.ca) if emulator else True
    return httpx.AsyncClient(base_url=url, verify=trusted, timeout=20, trust_env=False)


async def _signed_in(emulator: Emulator) -> dict[str, str]:
    form = {"client_id": "a", "client_secret": "b", "scope": f"{emulator.arm_url}/.default"}
    async with _client(emulator.arm_url, emulator) as arm:
        response = await arm.post(f"/{TENANT}/oauth2/v2.0/token", data=form)
    return {"Authorization": f"Bearer {response.json()['access_token']}"}


def _say(url: str, raw: bytes) -> bytes:
    """Send these bytes and return the reply, or nothing if the connection breaks."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=3) as line:
        try:
            line.sendall(raw)
            line.shutdown(socket.SHUT_WR)
            return line.recv(65536)
        except ConnectionError:
            return b""


def _leave(url: str, raw: bytes) -> None:
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=3) as line:
        line.sendall(raw)


async def test_who_speaks_http_badly_or_leaves_harms_nobody(emulator: Emulator) -> None:
    partial_request = b"POST /_emulator/evict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    await asyncio.to_thread(_leave, emulator.metadata_url, partial_request)
    await asyncio.to_thread(_say, emulator.arm_url, RAW[1])

    async with _client(emulator.arm_url, emulator) as arm, _client(emulator.metadata_url) as vm:
        assert (await arm.get("/metadata/endpoints")).status_code == 200
        assert (await vm.get("/_emulator/faults")).status_code == 200
