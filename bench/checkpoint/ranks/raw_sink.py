"""Contestant "raw_sink": Put Block over bare connections, without hashes or copies; the limit.

Training cannot go on meanwhile, so it has no stall. A way that does more cannot be cheaper.
"""

import http.client
import os
import ssl
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from bench.checkpoint.case import CheckpointCase
from bench.checkpoint.ranks.contestant import Local, folder_name
from bench.checkpoint.ranks.engine import State

CONNECTIONS = 4
PIECE = 8 * 2**20


class RawSink(Local):
    """One blob for each rank, one block for each piece of a view."""

    isolated = False
    helpers: Sequence[int] = ()

    def __init__(self, case: CheckpointCase, state: State) -> None:
        super().__init__(case, state)
        self._sink_url = urlsplit(case.url)
        self._pool = ThreadPoolExecutor(CONNECTIONS)
        self._thread = ThreadPoolExecutor(1)
        self._thread_local = threading.local()

    def save(self, number: int) -> "Future[None]":
        """Start a save in a thread and return at once."""
        return self._thread.submit(self._save, number)

    def load(self, number: int) -> None:
        """Read ranges of the blob into the engine's memory directly."""
        spans, at = [], 0
        for piece in self._pieces():
            spans.append((piece, at))
            at += len(piece)
        list(self._pool.map(lambda span: self._fetch(number, *span), spans))

    def close(self) -> None:
        """Stop the threads; their connections close with them."""
        self._thread.shutdown()
        self._pool.shutdown()

    def _pieces(self) -> list[memoryview]:
        pieces = []
        for _, view in self.state.views():
            raw = memoryview(view.detach().numpy()).cast("B")
            pieces += [raw[at : at + PIECE] for at in range(0, len(raw), PIECE)]
        return pieces

    def _save(self, number: int) -> None:
        pieces = self._pieces()
        ids = [f"{n:08d}" for n in range(len(pieces))]
        list(
            self._pool.map(
                lambda i, p: self._put(number, f"comp=block&blockid={i}", p), ids, pieces
            )
        )
        inside = "".join(f"<Latest>{i}</Latest>" for i in ids)
        text = f'<?xml version="1.0"?><BlockList>{inside}</BlockList>'
        self._put(number, "comp=blocklist", memoryview(text.encode()))

    def _put(self, number: int, query: str, body: memoryview) -> None:
        headers = {"Content-Length": str(len(body))}
        self._request("PUT", self._path(number, query), body, headers).read()

    def _fetch(self, number: int, piece: memoryview, at: int) -> None:
        headers = {"Range": f"bytes={at}-{at + len(piece) - 1}"}
        answer = self._request("GET", self._path(number, ""), None, headers)
        while piece:
            received = answer.readinto(piece)
            if not received:
                raise ConnectionError("the sink sent less than it said")
            piece = piece[received:]
        answer.read()

    def _path(self, number: int, query: str) -> str:
        name = f"{folder_name(number)}/rank-{self.state.rank:05d}"
        return f"{self._sink_url.path}/{name}?{query}&{self._sink_url.query}"

    def _request(
        self, method: str, path: str, body: memoryview | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        connection = self._connection()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            raise ConnectionError(f"{method} {path}: {answer.status} {answer.read()[:200]!r}")
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        if not hasattr(self._thread_local, "connection"):
            self._thread_local.connection = _connected(self._sink_url.scheme, self._sink_url.netloc)
        connection: http.client.HTTPConnection = self._thread_local.connection
        return connection


def _connected(scheme: str, netloc: str) -> http.client.HTTPConnection:
    options: dict[str, Any] = {"timeout": 120, "blocksize": 1 << 20}
    if scheme == "http":
        return http.client.HTTPConnection(netloc, **options)
    trusted = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
    return http.client.HTTPSConnection(netloc, context=trusted, **options)
