"""Cloud and Blob of the benchmark: `python -m bench.scale.parts.world SOCKET`.

It holds the shipped fakes in one process that all others call. --arm-ms and --blob-ms set the
latencies in milliseconds.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.scale.parts import line
from service.cloud.fake import FakeCloud
from service.cloud.provider import ATTEMPT_TAG, JOB_TAG
from service.operations.models import models
from service.storage.fake import MemoryStore
from trainer.contract import HEAD, Committed, Head
from trainer.tiny import build_tokenizer

MODEL = "rekindle/tiny-llama"
ARM = {"get": 2, "refill": 3}  # ARM requests per verb, as AzureCloud sends them; others: 1
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


class FakeWorld:
    """The fakes, and the methods for them: ``cloud.VERB``, ``store.VERB`` and ``bench.VERB``."""

    def __init__(self, arm_seconds: float, blob_seconds: float) -> None:
        self.cloud = FakeCloud(
            now=_now,
            owner="bench",
            create_time=timedelta(seconds=1),
            delete_time=timedelta(seconds=1),
            visible_after=timedelta(0),
        )
        self.store = MemoryStore(now=_now)
        self._seconds = {"cloud": arm_seconds, "store": blob_seconds}
        self._arm: Counter[str] = Counter()
        self._booted: set[str] = set()

    async def handle(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Carry out one call."""
        part, _, verb = method.partition(".")
        if part == "bench":
            return await getattr(self, f"do_{verb}")(*args)
        if part == "cloud":
            self._arm[verb] += ARM.get(verb, 1)
        await asyncio.sleep(self._seconds[part])
        return await getattr(getattr(self, part), verb)(*args, **kwargs)

    async def do_arm(self) -> dict[str, int]:
        """Return the number of ARM requests so far, by verb."""
        return dict(self._arm)

    async def do_stage(self) -> str:
        """Stage a base model and return its name."""
        where = models.container(MODEL)
        await self.store.create_container(where)
        files = []
        for name, data in (_tokenizer() | {"model.safetensors": b"weights"}).items():
            await self.store.write(where, f"main-1/{name}", data)
            files.append({"name": name, "size": len(data), "sha256": sha256(data).hexdigest()})
        head = {"name": MODEL, "revision": "main-1", "files": files, "config": CONFIG}
        await self.store.write(where, "HEAD", json.dumps(head).encode())
        return MODEL

    async def do_boots(self) -> list[tuple[str, str, str, str]]:
        """Return new machines since the last call: attempt, job, VM id, name."""
        machines = []
        for scale_set in self.cloud.list_existing(self._booted):
            if scale_set.instances:
                self._booted.add(scale_set.name)
                attempt, job = scale_set.tags[ATTEMPT_TAG], scale_set.tags[JOB_TAG]
                machines += [(attempt, job, i.vm_id, i.name) for i in scale_set.instances]
        return machines

    async def do_evict(self, machines: list[str]) -> None:
        """Evict machines by name."""
        for name in machines:
            scale_set, _, number = name.rpartition("_")
            with suppress(KeyError):  # the service deleted it meanwhile
                self.cloud.evict(scale_set, number)

    async def do_commit(self, job_id: str, generation: int, step: int) -> None:
        """Write a checkpoint entry into HEAD, as rank 0's node does."""
        data, etag = await self.store.read(job_id, HEAD)
        entry = Committed(
            path=f"checkpoints/step-{step:08d}-{generation:08x}",
            step=step,
            consumed_samples=step * 8,
            world_size=2,
            generation=generation,
            kind="periodic",
            size=1000,
            manifest_sha256="0" * 64,
            committed_at=_now().timestamp(),
        )
        head = Head.from_json(data).with_checkpoint(entry)
        await self.store.write(job_id, HEAD, head.to_json().encode(), if_match=etag)


def _tokenizer() -> dict[str, bytes]:
    """Return the files of the tiny model's tokenizer, which the service needs to read rows."""
    with tempfile.TemporaryDirectory() as folder:
        build_tokenizer().save_pretrained(folder)
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def _now() -> datetime:
    return datetime.now(UTC)


async def main() -> None:
    """Serve calls until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("socket", type=Path)
    parser.add_argument("--arm-ms", type=float, default=100)
    parser.add_argument("--blob-ms", type=float, default=10)
    options = parser.parse_args()
    world = FakeWorld(options.arm_ms / 1000, options.blob_ms / 1000)
    server = await line.serve(options.socket, world.handle)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
