"""The node's own copies of what its job reads: each fetched and verified once, whoever asks.

What a job will read is known as soon as the node has joined, so fetching begins then, while
other machines still boot. A generation that starts waits for what is under way, and asks
again for what has failed. A copy has its name only once it is verified. Tokens alone are not
waited for: a trainer that does not find them makes them.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from trainer.contract import MANIFEST, RUN_SPEC, Committed, Grants, InputFile, RunSpec
from trainer.data.token_names import data_files, tokens_name
from trainer.rundir import RunDir, drop_checkpoint
from trainer.supervisor.blobs import BlobError, JobContainer
from trainer.supervisor.commit import read_head
from trainer.supervisor.inputs import fetch_checkpoint, fetch_input, inputs_of, inside
from trainer.supervisor.sharing import fetch_tokens
from trainer.supervisor.together import together
from trainer.supervisor.transfer import Corrupt

log = logging.getLogger(__name__)


class Cache:
    """Copies below one folder; it outlives generations and supervisors."""

    def __init__(self, folder: Path, container: JobContainer) -> None:
        self._inputs = folder.resolve() / "inputs"
        self._tokens = folder.resolve() / "tokens"
        self._checkpoints = folder.resolve() / "checkpoints"
        self._container = container
        self._under_way: dict[Path, asyncio.Task[None]] = {}
        self._wanted: Path | None = None  # the checkpoint that a generation asked for

    async def prefetch(self, grants: Grants) -> None:
        """Fetch what a generation will most likely ask for. It is no error when that fails."""
        try:
            data, _ = await self._container.read(RUN_SPEC)
            head, _ = await read_head(self._container)
            spec = RunSpec.from_json(data)
            calls = [self._input(f, grants) for f in inputs_of(spec)]
            if head.newest is not None and self._wanted is None:
                calls.append(self._checkpoint(head.newest))
            await together(calls)
            self._begin_tokens(spec)
        except (BlobError, Corrupt, OSError, ValueError) as e:
            log.info("prefetch.given_up reason=%s", e)

    async def inputs(self, spec: RunSpec, grants: Grants, folder: RunDir) -> None:
        """Link base model, data files and the place of the tokens into the folder."""
        files = inputs_of(spec)
        await together(self._input(file, grants) for file in files)
        for file in files:
            _link(folder.input(file.path), self._inputs / file.path)
        self._tokens.mkdir(parents=True, exist_ok=True)
        _link(folder.cache, self._tokens)
        self._begin_tokens(spec)

    async def checkpoint(self, committed: Committed, folder: RunDir) -> None:
        """Link the checkpoint that the generation loads into its folder; drop every other."""
        self._wanted = self._folder_of(committed)
        await self._drop_others(self._wanted)
        await self._checkpoint(committed)
        _link(folder.checkpoint, self._wanted)

    async def close(self) -> None:
        """Give up what is under way."""
        await _end(list(self._under_way.values()))

    async def _input(self, file: InputFile, grants: Grants) -> None:
        path = inside(self._inputs, file.path)
        await self._once(path, partial(fetch_input, self._container, grants, file, path))

    async def _checkpoint(self, committed: Committed) -> None:
        folder = self._folder_of(committed)
        fetch = partial(fetch_checkpoint, self._container, committed, folder)
        await self._once(folder / MANIFEST, fetch)

    def _begin_tokens(self, spec: RunSpec) -> None:
        for file in data_files(spec):
            path = self._tokens / tokens_name(spec, file)
            self._begin(path, partial(fetch_tokens, self._container, path))

    def _folder_of(self, committed: Committed) -> Path:
        """The manifest names every byte of a checkpoint, and its hash the manifest."""
        return inside(self._checkpoints, committed.manifest_sha256)

    async def _once(self, path: Path, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Join the work that ends with ``path``, or begin it, unless the path is there."""
        self._begin(path, work)
        if path in self._under_way:
            await asyncio.shield(self._under_way[path])

    def _begin(self, path: Path, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if path not in self._under_way and not path.exists():
            task = self._under_way[path] = asyncio.ensure_future(work())
            task.add_done_callback(partial(self._ended, path))

    def _ended(self, path: Path, task: asyncio.Task[None]) -> None:
        del self._under_way[path]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("fetch.failed path=%s reason=%s", path.name, error)

    async def _drop_others(self, wanted: Path) -> None:
        """Make room: a job's checkpoint may be the largest thing on the disk."""
        others = [p for p in self._checkpoints.glob("*") if p != wanted]
        await _end([t for path, t in self._under_way.items() if path.parent in others])
        for folder in others:
            await asyncio.to_thread(drop_checkpoint, folder)


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
