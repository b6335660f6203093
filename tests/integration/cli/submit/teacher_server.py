"""A teacher on the loopback: a real HTTP server of chat completions that does as it is told."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Answering = Callable[[Json, int], "Said"]  # of a request, and how often that one was there before


@dataclass(frozen=True)
class Said:
    """A whole HTTP answer."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Served:
    """What a running teacher was asked."""

    url: str = ""
    asked: list[Json] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    enough: threading.Event = field(default_factory=threading.Event)  # set once so many were asked
    count_to: int = -1

    def note(self, request: Json, key: str) -> int:
        """How often this very request was there before."""
        with self.lock:
            before = self.asked.count(request)
            self.asked.append(request)
            self.keys.add(key)
            if len(self.asked) == self.count_to:
                self.enough.set()
            return before


def answer(text: str | None, ended: str = "stop", tokens: tuple[int, int] = (10, 4)) -> Said:
    """Return a chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return Said(
        json.dumps({"choices": [choice | {"finish_reason": ended}], "usage": usage}).encode()
    )


def failure(status: int, message: str, code: str = "", **headers: str) -> Said:
    """OpenAI's envelope of an error."""
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Said(body, status, told)


@contextmanager
def teaching(answering: Answering) -> Iterator[Served]:
    """Serve a teacher as long as the context is open."""
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            before = served.note(request, self.headers.get("authorization", ""))
            said = answering(request, before)
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(said.body)))
            self.end_headers()
            self.wfile.write(said.body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False  # some of them are never answered
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield served
        finally:
            server.shutdown()
