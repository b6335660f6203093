"""Test built images as they will run: not root, nothing writable, no capabilities.

The service gets a real PostgreSQL; the trainer's node gets stand-ins for the service and the
metadata service.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from docker.engine import ContainerEngine, EngineError
from rekindle.local import postgres
from trainer.contract import PROTOCOL, NodeConfig

USER = 10001
TIMEOUT = 120.0  # seconds for anything to happen, on a busy machine
GRACE = "20"  # seconds from SIGTERM to SIGKILL; a container that needs SIGKILL ignored SIGTERM
IMPORTS = "import torch, deepspeed, transformers, peft, trainer.train; print(torch.__version__)"
INSTANCE = {
    "compute": {"vmId": "11111111-2222-3333-4444-555555555555", "name": "tryout_0"},
    "network": {"interface": [{"ipv4": {"ipAddress": [{"privateIpAddress": "127.0.0.1"}]}}]},
}


def service(engine: ContainerEngine, image: str) -> None:
    """Test that the service migrates, serves, is healthy, creates a key, and stops when asked."""
    _expect_no_setuid(engine, image)
    expect("service: --help", engine.run("rk-help", image, "--help"), 0, "migrate")
    expect("service: without settings", engine.run("rk-bare", image), 2, "REKINDLE_DATABASE_URL")
    with _database() as url:
        port = _free_port()
        settings = _settings(url, port)
        expect("service: migrate", engine.run("rk-migrate", *settings, image, "migrate"), 0)
        expect("service: migrate again", engine.run("rk-again", *settings, image, "migrate"), 0)
        key = engine.run("rk-key", *settings, image, "key", "create")
        expect("service: key create", key, 0, "rk-")
        with engine.running("rk-service", *settings, image, "all", "--port", str(port)):
            for path in ("/livez", "/readyz"):
                wait_until(partial(_status, f"http://127.0.0.1:{port}{path}"), 200)
                print_ok(f"service: GET {path} -> 200")
            _expect_health(engine, image, "rk-service", port)
            _stop(engine, "rk-service")


def trainer(engine: ContainerEngine, image: str) -> None:
    """Test that the trainer imports, requires settings, registers, is healthy, and stops."""
    _expect_no_setuid(engine, image)
    imports = engine.run("rk-imports", "--entrypoint", "python3", image, "-c", IMPORTS)
    expect("trainer: imports", imports, 0, "2.13.0")
    expect("trainer: without a node.json", engine.run("rk-bare", image), 2, "configuration.bad")
    with tempfile.TemporaryDirectory() as folder, _standin() as standin:
        node = _node(Path(folder), standin.server_port)
        with engine.running("rk-trainer", *node, image):
            wait_until(lambda: standin.registered.is_set() or _ended(engine, "rk-trainer"), True)
            if not standin.registered.is_set():
                raise EngineError(f"nobody registered:\n{engine.ask('logs', 'rk-trainer').stderr}")
            print_ok("trainer: reads node.json, finds its VM, registers")
            _expect_health(engine, image, "rk-trainer")
            _stop(engine, "rk-trainer")


@contextmanager
def _database() -> Iterator[str]:
    """Start a PostgreSQL that containers reach over the loopback address."""
    with tempfile.TemporaryDirectory() as folder:
        data, port = Path(folder) / "postgres", _free_port()
        postgres.create_cluster(data)
        postgres.start_server(data, "listen_addresses=127.0.0.1", f"port={port}")
        try:
            yield f"postgresql+psycopg://{postgres.SUPERUSER}@127.0.0.1:{port}/postgres"
        finally:
            postgres.stop_server(data)


def _settings(database_url: str, port: int) -> list[str]:
    settings = {
        "REKINDLE_DATABASE_URL": database_url,
        "REKINDLE_STORAGE": "UseDevelopmentStorage=true",
        "REKINDLE_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "REKINDLE_SECRET_KEY": "only for this tryout, and long enough",
        "REKINDLE_DEPLOYMENT": "tryout",
        "REKINDLE_CLOUD": "fake",
        "REKINDLE_OFFERINGS": "Standard_ND96amsr_A100_v4@eastus",
    }
    return [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]


def _node(folder: Path, port: int) -> list[str]:
    """Return the `docker run` options of cloud-init; write the files that it would write."""
    config = NodeConfig(
        protocol=PROTOCOL,
        service_url=f"http://127.0.0.1:{port}",
        attempt_id="att-tryout",
        bootstrap_token="none",  # noqa: S106 - the stand-in asks for none
        accelerator="cpu",
        processes_per_node=1,
    )
    work = folder / "work"
    work.mkdir()
    (folder / "node.json").write_text(config.to_json())
    for path in (folder, folder / "node.json", work):
        give_to_user(path)
    mounts = (f"{folder}/node.json:/etc/rekindle/node.json:ro", f"{work}:/var/lib/rekindle")
    return [
        *(word for mount in mounts for word in ("--volume", mount)),
        *("--env", f"REKINDLE_METADATA_URL=http://127.0.0.1:{port}"),
    ]


def give_to_user(path: Path) -> None:
    """Make a file readable for the containers' user only, as cloud-init does; else for all."""
    try:
        os.chown(path, USER, USER)
        path.chmod(0o700)
    except PermissionError:
        path.chmod(0o777)


class _Standin(ThreadingHTTPServer):
    """Stand-in for the metadata service and the service, which refuses registrations."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.registered = threading.Event()


class _Answers(BaseHTTPRequestHandler):
    server: _Standin

    def do_GET(self) -> None:
        """Answer as the instance metadata service."""
        self._answer(200, INSTANCE if "instance" in self.path else {"Events": []})

    def do_POST(self) -> None:
        """Refuse a registration with 503, so that the node tries again."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.registered.set()
        self._answer(503, {"error": {"message": "come again", "code": "unavailable"}})

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def _standin() -> Iterator[_Standin]:
    with _Standin() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def expect(what: str, done: "subprocess.CompletedProcess[str]", code: int, said: str = "") -> None:
    """Raise EngineError unless a command ended with ``code`` and printed ``said``."""
    output = done.stdout + done.stderr
    if done.returncode != code or said not in output:
        raise EngineError(f"{what}: ended with {done.returncode}, not {code}, {said!r}:\n{output}")
    print_ok(what)


def _expect_no_setuid(engine: ContainerEngine, image: str) -> None:
    """Check that no file runs with its owner's rights, in folders that user 10001 can read."""
    words = ("/", "-xdev", "-type", "f", "-perm", "/6000")
    found = engine.run("rk-setuid", "--entrypoint", "find", image, *words)
    if found.stdout or found.returncode > 1:  # 1: some folder was left out
        said = found.stdout or found.stderr
        raise EngineError(f"{image} has programs with the rights of their owners:\n{said}")
    print_ok(f"{image}: no setuid program")


def _expect_health(engine: ContainerEngine, image: str, name: str, port: int = 8080) -> None:
    """Wait until the image's own health check succeeds in its container."""
    words = [word.replace(":8080/", f":{port}/") for word in health_check(engine, image)]
    wait_until(lambda: engine.ask("exec", name, *words).returncode, 0)
    print_ok(f"{name.removeprefix('rk-')}: healthy")


def health_check(engine: ContainerEngine, image: str) -> list[str]:
    """Return the command of an image's health check."""
    facts = json.loads(engine.ask("image", "inspect", image).stdout)[0]
    words: list[str] = (facts["Config"].get("Healthcheck") or facts["Healthcheck"])["Test"][1:]
    return words


def wait_until(look: Callable[[], int], wanted: int) -> None:
    """Call ``look`` until it returns ``wanted``."""
    latest, pause = time.monotonic() + TIMEOUT, threading.Event()
    while (seen := look()) != wanted:
        if time.monotonic() > latest:
            raise EngineError(f"still {seen}, not {wanted}, after {TIMEOUT:.0f} s")
        pause.wait(0.2)


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code
    except httpx.TransportError:
        return 0


def _ended(engine: ContainerEngine, name: str) -> bool:
    return engine.ask("inspect", "--format", "{{.State.Running}}", name).stdout.strip() != "true"


def _stop(engine: ContainerEngine, name: str) -> None:
    began = time.monotonic()
    engine.ask("stop", "--time", GRACE, name)
    took = time.monotonic() - began
    code = engine.ask("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip()
    if code != "0":
        raise EngineError(f"{name} ended with {code}:\n{engine.ask('logs', name).stderr}")
    print_ok(f"{name.removeprefix('rk-')}: ends on SIGTERM with 0 after {took:.1f} s")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def print_ok(what: str) -> None:
    """Print what was tested."""
    sys.stdout.write(f"  ok  {what}\n")
    sys.stdout.flush()
