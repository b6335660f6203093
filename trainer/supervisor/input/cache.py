"""The node's local copies of what its job reads: each is fetched and verified once.

Fetching begins as soon as the node has joined, while other machines still boot. A generation that
starts joins the fetches under way and retries failed ones. A copy gets its name once it is
verified; a checkpoint's tensors arrive block by block (`tensor_blocks.py`). Only tokens are
optional: a trainer that does not find them tokenizes.
"""

import asyncio
import logging
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainer.contract import (
    MANIFEST,
    RUN_SPEC,
    Committed,
    ConvertedBase,
    FileEntry,
    Grants,
    InputFile,
    Manifest,
    PinnedModel,
    RunSpec,
)
from trainer.data.token_cache import data_files, tokens_name
from trainer.process.disk_full import is_disk_full
from trainer.rundir import RunDir, drop_checkpoint, write_atomically
from trainer.supervisor.blob.container import BlobError, JobContainer
from trainer.supervisor.blob.transfer import CorruptError
from trainer.supervisor.concurrency import SingleFlight, gather_or_cancel
from trainer.supervisor.input.fetch import (
    fetch_checkpoint_file,
    fetch_input,
    fetch_job_file,
    files_needed_in_full,
    input_files,
    parse_manifest,
    path_inside,
    read_converted_base,
    read_if_present,
    read_manifest,
)
from trainer.supervisor.input.tensor_blocks import (
    LocalCheckpoint,
    Retry,
    TensorBlockFetcher,
    own_blocks,
)
from trainer.supervisor.input.token_sharing import fetch_tokens
from trainer.supervisor.machine.memory_files import MemoryFolder
from trainer.supervisor.upload.commit import read_head

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StartingCheckpointPaths:
    """Paths of a starting checkpoint, its run spec and its base model on this node."""

    checkpoint: Path
    run_spec: Path
    base: Path


class InputCache:
    """Copies below one folder; they outlive generations and supervisors."""

    def __init__(
        self, folder: Path, memory: MemoryFolder, container: JobContainer, processes: int
    ) -> None:
        self._inputs = folder.resolve() / "inputs"
        self._tokens = folder.resolve() / "tokens"
        self._spill_folder = folder.resolve() / "checkpoints"  # for want of memory
        self._memory = memory
        self.container = container
        self._processes = processes  # of this node
        self._fetches = SingleFlight()
        self._block_fetcher = TensorBlockFetcher(
            container, memory, self._spill_folder, self._fetches
        )
        self._requested_checkpoint: Path | None = None  # by a generation

    async def prefetch(self, grants: Grants) -> None:
        """Fetch what a generation will most likely need; errors are ignored."""
        try:
            data, _ = await self.container.read(RUN_SPEC)
            head, _ = await read_head(self.container)
            spec = RunSpec.from_json(data)
            calls = [self._fetch_input(f, grants) for f in input_files(spec)]
            if spec.base_model.checkpoint is not None and spec.nodes == 1:
                calls.append(self._fetch_starting_model(spec.base_model, grants))
            ranks = range(self._processes)
            if head.newest is not None and self._requested_checkpoint is None and spec.nodes == 1:
                calls.append(self._prefetch_checkpoint(head.newest, ranks))
            await gather_or_cancel(calls)
            self._start_token_fetches(spec)
        except (BlobError, CorruptError, OSError, ValueError) as e:
            log.info("prefetch.given_up reason=%s", e)

    async def link_inputs(self, spec: RunSpec, grants: Grants, folder: RunDir) -> None:
        """Link base model, data files and the token folder into the run folder."""
        files = input_files(spec)
        await gather_or_cancel(self._fetch_input(file, grants) for file in files)
        for file in files:
            _link(folder.input(file.path), self._inputs / file.path)
        self._tokens.mkdir(parents=True, exist_ok=True)
        _link(folder.cache, self._tokens)
        self._start_token_fetches(spec)

    async def fetch_starting_checkpoint(
        self, base: PinnedModel, grants: Grants
    ) -> StartingCheckpointPaths:
        """Fetch a starting checkpoint, and what its conversion needs."""
        assert base.checkpoint is not None
        files, spec = base.checkpoint.files, base.checkpoint.run_spec
        await gather_or_cancel(
            self._fetch_input(file, grants) for file in (*files, *base.files, spec)
        )
        return StartingCheckpointPaths(
            checkpoint=path_inside(self._inputs, files[0].path).parent,
            run_spec=path_inside(self._inputs, spec.path),
            base=path_inside(self._inputs, base.files[0].path).parent,
        )

    def drop_starting_checkpoint(self, base: PinnedModel) -> None:
        """Delete the inputs of the conversion: they are not read again."""
        assert base.checkpoint is not None
        for file in (*base.checkpoint.files, base.checkpoint.run_spec, *base.files):
            path_inside(self._inputs, file.path).unlink(missing_ok=True)

    def adopt_converted_base(self, converted_base: ConvertedBase, folder: Path) -> None:
        """Move the files of a base model that was converted on this node into the cache."""
        for file in converted_base.files:
            path = path_inside(self._inputs, file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            (folder / file.name).replace(path)
        shutil.rmtree(folder)

    async def link_converted_base(self, converted_base: ConvertedBase, folder: RunDir) -> None:
        """Fetch and link the converted base model into the run folder."""
        await self._fetch_converted_base(converted_base)
        _link(folder.converted_base, path_inside(self._inputs, converted_base.files[0].path).parent)

    async def link_checkpoint(
        self, committed: Committed, folder: RunDir, world_size: int, ranks: range
    ) -> None:
        """Link the checkpoint that these ranks load into their folder; drop every other.

        Its tensors may come later: see `serve_tensor_blocks`.
        """
        self._requested_checkpoint = self._checkpoint_folder(committed)
        await self._drop_others(self._requested_checkpoint)
        await self._fetch_checkpoint(committed, world_size, ranks)
        _link(folder.checkpoint, self._requested_checkpoint)

    async def serve_tensor_blocks(
        self,
        committed: Committed,
        folder: RunDir,
        world_size: int,
        ranks: range,
        retry: Retry,
    ) -> None:
        """Fetch the blocks that these ranks read, in their order, until all have them."""
        checkpoint_folder = self._checkpoint_folder(committed)
        data = await asyncio.to_thread(read_if_present, checkpoint_folder / MANIFEST)
        checkpoint = LocalCheckpoint(committed.path, checkpoint_folder, Manifest.from_json(data))
        await gather_or_cancel(
            self._block_fetcher.serve_rank(
                checkpoint, world_size, rank, folder.wanted_ranges(rank), retry
            )
            for rank in ranks
        )

    async def drop_checkpoint(self) -> None:
        """Free the memory of the checkpoint: every rank has loaded it."""
        if self._requested_checkpoint is not None:
            await self._fetches.cancel([self._requested_checkpoint])
            for folder in (
                self._requested_checkpoint,
                self._spill_folder / self._requested_checkpoint.name,
            ):
                await asyncio.to_thread(drop_checkpoint, folder)

    async def close(self) -> None:
        """Cancel the fetches under way."""
        await self._fetches.cancel()

    async def _fetch_input(self, file: InputFile, grants: Grants) -> None:
        path = path_inside(self._inputs, file.path)
        work = partial(fetch_input, self.container, grants, file, path)
        await self._fetches.run_once(path, work)

    async def _fetch_converted_base(self, converted_base: ConvertedBase) -> None:
        paths = {path_inside(self._inputs, file.path): file for file in converted_base.files}
        await gather_or_cancel(
            self._fetches.run_once(path, partial(fetch_job_file, self.container, file, path))
            for path, file in paths.items()
        )

    async def _fetch_starting_model(self, base: PinnedModel, grants: Grants) -> None:
        """Fetch the converted base model, or the inputs of its conversion."""
        if (converted_base := await read_converted_base(self.container)) is not None:
            await self._fetch_converted_base(converted_base)
        else:
            await self.fetch_starting_checkpoint(base, grants)

    async def _prefetch_checkpoint(self, committed: Committed, ranks: range) -> None:
        """Fetch all that the ranks will read, if the world size is the one that saved."""
        checkpoint = await self._fetch_checkpoint(committed, len(ranks), ranks)
        for rank in ranks:
            await self._block_fetcher.fetch_blocks(
                checkpoint, own_blocks(checkpoint.manifest, len(ranks), rank)
            )

    async def _fetch_checkpoint(
        self, committed: Committed, world_size: int, ranks: range
    ) -> LocalCheckpoint:
        folder = self._checkpoint_folder(committed)
        data = await asyncio.to_thread(read_if_present, folder / MANIFEST)
        data = data or await read_manifest(self.container, committed)
        manifest = parse_manifest(data, committed.path)
        full_files = files_needed_in_full(manifest, world_size, ranks)
        preparations = [
            self._block_fetcher.prepare_file(file, folder) for file in manifest.files if file.blocks
        ]
        await gather_or_cancel(
            [
                *preparations,
                *(self._fetch_file(committed.path, file, folder) for file in full_files),
            ]
        )
        write_atomically(folder / MANIFEST, data)
        return LocalCheckpoint(committed.path, folder, manifest)

    async def _fetch_file(self, path: str, file: FileEntry, folder: Path) -> None:
        target = path_inside(folder, file.name)
        await self._fetches.run_once(target, partial(self._reuse_or_fetch_file, path, file, target))

    async def _reuse_or_fetch_file(self, path: str, file: FileEntry, target: Path) -> None:
        """Take the file from this machine's memory, else from Blob; spill to disk when full."""
        if await asyncio.to_thread(self._memory.reuse_file, file, target):
            return
        try:
            await fetch_checkpoint_file(self.container, path, file, target)
        except OSError as e:
            if not is_disk_full(e):
                raise
            spilled = self._spill_folder / target.parent.name / target.name
            await fetch_checkpoint_file(self.container, path, file, spilled)
            _link(target, spilled)

    def _start_token_fetches(self, spec: RunSpec) -> None:
        for file in data_files(spec):
            path = self._tokens / tokens_name(spec, file)
            self._fetches.start(path, partial(fetch_tokens, self.container, path))

    def _checkpoint_folder(self, committed: Committed) -> Path:
        """Return the folder of a checkpoint, which is named by its manifest's hash."""
        return path_inside(self._memory.checkpoints, committed.manifest_sha256)

    async def _drop_others(self, current: Path) -> None:
        """Delete other checkpoints: one may be the largest thing on the disk."""
        roots = (self._memory.checkpoints, self._spill_folder)
        folders = [p for root in roots for p in root.glob("*") if p.name != current.name]
        await self._fetches.cancel(folders)
        for folder in folders:
            await asyncio.to_thread(drop_checkpoint, folder)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
