"""`make audit` against databases of our own: what is known fails, what cannot be asked does not."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from docker.engine import ROOT

LOCK = "docker/torch-cpu.txt"  # one package: one question
OSV = {
    "vulns": [
        {
            "id": "GHSA-1111-2222-3333",
            "summary": "It can be made to run code.",
            "affected": [
                {
                    "package": {"name": "torch", "ecosystem": "PyPI"},
                    "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "2.13.1"}]}],
                }
            ],
        }
    ]
}
NPM = {
    "azurite": [
        {
            "id": 7,
            "url": "https://example.org/advisories/GHSA-4444-5555-6666",
            "title": "It reads too much.",
            "severity": "high",
            "vulnerable_versions": "<4",
            "cwe": [],
            "cvss": {},
        }
    ]
}


class Database(ThreadingHTTPServer):
    """OSV and npm's registry in one; it knows what it is given."""

    def __init__(self, osv: dict[str, Any], npm: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.answers = {"/v1/query": osv, "/-/npm/v1/security/advisories/bulk": npm}


class Answers(BaseHTTPRequestHandler):
    server: Database

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(self.server.answers[self.path])

    def do_GET(self) -> None:
        """npm reads which versions of a package an advisory means."""
        self.answer({"name": "azurite", "versions": {"3.35.0": {"version": "3.35.0"}}})

    def answer(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def alarming() -> Iterator[str]:
    yield from serve(Database(OSV, NPM))


def serve(database: Database) -> Iterator[str]:
    with database:
        threading.Thread(target=database.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{database.server_port}"
        database.shutdown()


@pytest.fixture
def closed() -> Iterator[str]:
    """Yield a port that stays ours and that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def audit(url: str, *options: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"npm_config_registry": url, "NO_PROXY": "127.0.0.1"}  # noqa: TID251
    arguments = [sys.executable, "-m", "docker.audit", "--osv", f"{url}/v1/query", *options, LOCK]
    return subprocess.run(
        arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_a_known_vulnerability_fails_and_is_named_with_the_version_that_has_none(
    alarming: str,
) -> None:
    completed = audit(alarming)

    assert completed.returncode == 1, completed.stderr
    assert "torch 2.13.0+cpu GHSA-1111-2222-3333 fixed in 2.13.1" in completed.stdout
    assert "azurite <4 GHSA-4444-5555-6666 It reads too much." in completed.stdout


def test_an_accepted_vulnerability_does_not_fail(alarming: str) -> None:
    completed = audit(alarming, "--ignore=GHSA-1111-2222-3333", "--ignore=GHSA-4444-5555-6666")

    assert completed.returncode == 0, completed.stdout


def test_without_a_reachable_database_it_says_so_and_does_not_fail(closed: str) -> None:
    completed = audit(closed)

    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.count("NOT AUDITED, no advisory database is reachable: ") == 2
    assert closed in completed.stdout
