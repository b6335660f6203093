"""The proxy of an emulated VM: what passes through it, and what does not while it is cut."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import requests

from emulator.faults.harm import Harm
from emulator.faults.proxy import Proxy

SIZE = 3_000_000


class Echo(BaseHTTPRequestHandler):
    """Answers with what it was sent, and with its own port."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        """Send the body back."""
        self._answer(self._body())

    def do_GET(self) -> None:
        """Say which path was asked for, at which host."""
        self._answer(f"{self.path} {self.headers['host']}".encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _body(self) -> bytes:
        if length := self.headers.get("content-length"):
            return self.rfile.read(int(length))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def servers() -> Iterator[list[str]]:
    """Two hosts."""
    started = [ThreadingHTTPServer(("127.0.0.1", 0), Echo) for _ in range(2)]
    for server in started:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield [f"127.0.0.1:{server.server_port}" for server in started]
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """One, never left cut."""
    running_proxy = Proxy("spared:80")
    running_proxy.start()
    yield running_proxy
    running_proxy.obey(Harm())


@pytest.fixture
def session(proxy: Proxy) -> Iterator[requests.Session]:
    """Yield the session below Azure's Blob SDK, with one connection for all hosts of a proxy."""
    with requests.Session() as http:
        http.trust_env = False
        http.proxies = {"http": proxy.url}
        yield http


def test_bodies_of_any_form_arrive_whole(servers: list[str], session: requests.Session) -> None:
    body = bytes(range(256)) * (SIZE // 256)
    url = f"http://{servers[0]}/blob"
    plain = session.put(url, data=body, timeout=120)
    chunked = session.put(url, data=iter([body[:1000], body[1000:]]), timeout=120)
    empty = session.put(url, data=b"", timeout=120)

    assert (plain.content == body, chunked.content == body, empty.content) == (True, True, b"")


def test_one_connection_of_a_client_serves_several_hosts(
    servers: list[str], session: requests.Session
) -> None:
    hosts = [servers[0], servers[1], servers[1], servers[0]]
    bodies = [session.get(f"http://{host}/a?b=c", timeout=120).text for host in hosts]

    assert bodies == [f"/a?b=c {host}" for host in hosts]


def test_a_tunnel_passes_bytes_it_does_not_understand(proxy: Proxy, servers: list[str]) -> None:
    host, port = proxy.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=120) as line:
        line.sendall(f"CONNECT {servers[0]} HTTP/1.1\r\n\r\n".encode())
        established = line.recv(1000)
        line.sendall(b"GET /inside HTTP/1.0\r\nHost: x\r\n\r\n")
        received = b"".join(iter(lambda: line.recv(1000), b""))

    assert established.startswith(b"HTTP/1.1 200 ")
    assert received.endswith(b"/inside x")


def test_while_it_is_cut_requests_hang_and_arrive_when_it_is_mended(
    proxy: Proxy, servers: list[str], session: requests.Session
) -> None:
    proxy.obey(Harm(cuts={servers[0]: "drop"}))
    with pytest.raises(requests.exceptions.ReadTimeout):
        session.get(f"http://{servers[0]}/", timeout=0.3)
    elsewhere = session.get(f"http://{servers[1]}/", timeout=120).status_code
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(session.get, f"http://{servers[0]}/late", timeout=120)
        proxy.obey(Harm())
        arrived = late.result(20).text

    assert (elsewhere, arrived) == (200, f"/late {servers[0]}")


def test_a_reset_breaks_what_is_under_way_and_refuses_what_is_new(
    proxy: Proxy, servers: list[str], session: requests.Session
) -> None:
    session.get(f"http://{servers[0]}/", timeout=120)
    proxy.obey(Harm(cuts={"127.0.0.*": "reset"}))
    for _ in range(2):
        with pytest.raises(requests.exceptions.ConnectionError):
            session.get(f"http://{servers[0]}/", timeout=120)
    proxy.obey(Harm())

    assert session.get(f"http://{servers[0]}/", timeout=120).status_code == 200


def test_who_is_not_there_breaks_off_and_leaves_the_proxy_alone(
    proxy: Proxy, servers: list[str]
) -> None:
    with httpx.Client(proxy=proxy.url, timeout=120) as client:
        with pytest.raises(httpx.TransportError):
            client.get("http://127.0.0.1:1/")
        assert client.get(f"http://{servers[0]}/").status_code == 200


def test_the_metadata_service_is_never_cut(servers: list[str]) -> None:
    spared = Proxy(servers[0])
    spared.start()
    spared.obey(Harm(cuts={"*": "reset"}))
    with httpx.Client(proxy=spared.url, timeout=120) as client:
        assert client.get(f"http://{servers[0]}/").status_code == 200


@pytest.mark.parametrize(
    ("pattern", "cut"), [("*", "drop"), ("blob.*", "drop"), ("*:443", "drop"), ("other", "")]
)
def test_a_pattern_names_hosts_with_or_without_their_port(pattern: str, cut: str) -> None:
    assert Harm(cuts={pattern: "drop"}).cut("blob.example:443") == cut
