"""Saving: training waits only for a copy into host memory; a thread writes it out.

Call `save` between two optimizer steps only, on every rank.
"""

import logging
import os
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint.files import write_tensors, write_text
from trainer.checkpoint.fragments import STATES, optimizer_step, owned
from trainer.checkpoint.index import FORMAT, Index, Stored, index_name, key, tensors_name
from trainer.checkpoint.randomness import Randomness
from trainer.contract import checkpoint_path
from trainer.room import advice, is_full
from trainer.rundir import RankSave, RunDir, write_whole
from trainer.state import Identity, State

GIVE_UP_TURNS = 100  # no rank makes a folder anew that often

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Save:
    """All that the writing thread needs; nothing in it changes any more."""

    index: Index
    record: RankSave
    sizes: dict[str, int]


class Saver:
    """Writes this rank's part of each save into the outbox."""

    def __init__(self, engine: Any, rundir: RunDir, identity: Identity) -> None:  # noqa: ANN401
        self._engine, self._rundir, self._identity = engine, rundir, identity
        self._fragments = owned(engine)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saver")
        numel = sum(f.numel for f in self._fragments) * len(STATES)
        # Touched ahead of the first save, which may be one with 30 seconds to live.
        self._buffer = self._thread.submit(_host_buffer, numel, engine.device.type == "cuda")
        self._writing: Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether the last save is still being written, so that the buffer is taken."""
        return self._writing is not None and not self._writing.done()

    def save(self, state: State, randomness: Randomness, kind: str) -> None:
        """Copy this rank's state and return; the writing goes on behind."""
        self.wait()
        began = time.perf_counter()
        sizes = self._copy()
        save = _Save(self._index(state, randomness), self._record(state, kind), sizes)
        self._writing = self._thread.submit(self._write, save)
        took = time.perf_counter() - began
        log.info("saving step %d (%s); training waited %.3f s", state.step, kind, took)

    def wait(self) -> None:
        """Return once nothing is being written; raise what the writing raised."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _copy(self) -> dict[str, int]:
        buffer, at, sizes = self._buffer.result(), 0, {}
        for fragment in self._fragments:
            for state, view in fragment.views.items():
                buffer[at : at + fragment.numel].copy_(view.detach(), non_blocking=True)
                sizes[key(fragment.name, state)] = fragment.numel
                at += fragment.numel
        if self._engine.device.type == "cuda":
            torch.cuda.synchronize()
        return sizes

    def _write(self, save: _Save) -> None:
        """Write it whole; on a full disk make room, and if that is not enough give it up.

        To train on with the checkpoint before is better than to fail.
        """
        folder = self._rundir.save_folder(save.record.path)
        note = self._rundir.skipped / save.record.name
        try:
            self._write_somehow(folder, save)
            note.unlink(missing_ok=True)
        except OSError as e:
            if not is_full(e) and not given_up(folder, e):
                raise
            give_up(folder)
            why = f"Step {save.record.step} was not saved, training goes on: {advice(e)}"
            log.warning("%s", why)
            with suppress(OSError):  # no room even for that: the log has it
                write_whole(note, why)

    def _write_somehow(self, folder: Path, save: _Save) -> None:
        try:
            self._write_into(folder, save)
        except OSError as e:
            if not is_full(e):
                raise
            self._rundir.make_room()
            self._write_into(folder, save)

    def _write_into(self, folder: Path, save: _Save) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        rank = self._identity.rank
        tensors = write_tensors(folder / tensors_name(rank), save.sizes, self._buffer.result())
        index = write_text(folder / index_name(rank), save.index.to_json())
        record = replace(save.record, files=(tensors, index), saved_at=time.time())
        write_whole(folder / record.name, record.to_json())

    def _record(self, state: State, kind: str) -> RankSave:
        me = self._identity
        return RankSave(
            path=checkpoint_path(state.step, me.nonce),
            rank=me.rank,
            writers=me.world_size,
            step=state.step,
            consumed_samples=state.consumed_samples,
            world_size=me.world_size,
            generation=me.generation,
            kind=kind,
            saved_at=0.0,
            files=(),
        )

    def _index(self, state: State, randomness: Randomness) -> Index:
        me = self._identity
        return Index(
            format=FORMAT,
            rank=me.rank,
            world_size=me.world_size,
            step=state.step,
            consumed_samples=state.consumed_samples,
            optimizer_step=optimizer_step(self._engine),
            run_spec_sha256=me.run_spec_sha256,
            metrics=state.metrics,
            randomness=randomness,
            fragments=tuple(
                Stored(name=f.name, shape=f.shape, start=f.start, numel=f.numel)
                for f in self._fragments
            ),
        )


def give_up(folder: Path) -> None:
    """Delete a save, and have a file in its place: other ranks of this node give it up as well.

    They may still be writing. So it is moved out of the outbox whole, and what one of them has
    made anew before the file was there is moved after it.
    """
    for turn in range(GIVE_UP_TURNS):
        gone = folder.parent.with_name(f".{folder.name}-{os.getpid()}-{turn}")
        with suppress(OSError):  # another rank was quicker
            if folder.is_dir():
                folder.rename(gone)
        with suppress(OSError):  # no room even for that
            folder.touch(exist_ok=False)
        shutil.rmtree(gone, ignore_errors=True)
        if not folder.is_dir():
            return


def given_up(folder: Path, error: OSError) -> bool:
    """True when another rank of this node has given up the save into which ours was written."""
    return isinstance(error, FileNotFoundError) or folder.is_file()


def _host_buffer(numel: int, pinned: bool) -> torch.Tensor:
    return torch.empty(numel, dtype=torch.float32, pin_memory=pinned).zero_()
