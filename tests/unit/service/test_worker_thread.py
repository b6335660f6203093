"""Checks that may take long run beside the event loop, one at a time."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from service.domain import strict_json
from service.domain.datasets.dataset import DatasetSummary, DatasetValidator
from service.operations.core import worker_thread
from service.operations.files import files

TIMEOUT = 60.0  # seconds, however loaded the machine is
ROW = b'{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}\n'


async def test_the_loop_goes_on_while_a_check_runs() -> None:
    served = threading.Event()

    async with asyncio.timeout(TIMEOUT):
        check = asyncio.create_task(worker_thread.run_in_worker(served.wait, TIMEOUT))
        await asyncio.sleep(0)  # it has begun, and the loop is free to say so
        served.set()
        assert await check


async def test_a_second_check_waits_for_the_first() -> None:
    done: list[str] = []
    first = threading.Event()

    def slow() -> None:
        first.wait(TIMEOUT)
        done.append("first")

    async with asyncio.timeout(TIMEOUT):
        checks = [
            worker_thread.run_in_worker(slow),
            worker_thread.run_in_worker(done.append, "second"),
        ]
        waiting = asyncio.gather(*checks)
        await asyncio.sleep(0)
        first.set()
        await waiting
    assert done == ["first", "second"]


@dataclass
class Threads(DatasetValidator):
    """Notes which thread judges."""

    seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def feed(self, chunk: bytes) -> None:
        self.seen.add(threading.current_thread().name.partition("_")[0])
        super().feed(chunk)


@dataclass
class Sent:
    """A file on its way in, and nobody who wants to know how far it is."""

    data: list[bytes]
    filename: str = "rows.jsonl"
    purpose: str | None = "fine-tune"
    expected_bytes: int | None = None

    def expires_after(self) -> int | None:
        return None

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self.data:
            yield chunk

    async def record_progress(self, received_bytes: int, examples: int) -> None:
        """Nothing is told."""


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ([ROW] * 3, "MainThread"),
        ([ROW, b" " * 40_000, b" " * 40_000, b"\n"], "worker"),
        ([ROW * 2000], "worker"),
    ],
)
async def test_a_long_line_is_judged_beside_the_loop(data: list[bytes], where: str) -> None:
    validator, verdict = Threads(), list[DatasetSummary]()
    recorder = Sent(data)
    watch = cast("files._ProgressRecorder", recorder)

    passed = [chunk async for chunk in files.validate_chunks(recorder, validator, verdict, watch)]

    assert passed == data
    assert where in validator.seen
    assert len(verdict) == 1


@pytest.mark.parametrize("text", ["[" * 500_001, "," * 2_000_001])
def test_json_of_too_many_values_is_refused_before_it_is_read(text: str) -> None:
    with pytest.raises(ValueError, match="holds more than 500000 brackets"):
        strict_json.loads(text)
