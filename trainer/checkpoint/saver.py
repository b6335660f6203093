"""Save checkpoints: training waits only for a copy into host memory.

The supervisor uploads from there. Call `save` on every rank, and only between two optimizer steps.
"""

import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint.answers import answers_name, write_answers
from trainer.checkpoint.checksum import describe_file
from trainer.checkpoint.fragments import AVERAGE, Fragment, optimizer_step, owned_fragments
from trainer.checkpoint.host_buffers import SaveSlot, make_slots
from trainer.checkpoint.index import FORMAT, RankIndex, StoredFragment, index_name, tensor_key
from trainer.checkpoint.rng_state import RngState
from trainer.contract import BLOCK, checkpoint_path
from trainer.engine import loss_scale
from trainer.process.disk_full import error_with_remedy, is_disk_full
from trainer.rollout.experience import ReplayState
from trainer.rundir import RankSave, RunDir, write_atomically
from trainer.state import RankIdentity, TrainingState

GIVE_UP_ATTEMPTS = 100  # no rank makes a folder anew that often
POLL_SECONDS = 0.02
_POLL = threading.Event()

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Save:
    """The immutable input of the writing thread."""

    index: RankIndex
    record: RankSave
    slot: SaveSlot
    experience: ReplayState


@dataclass(frozen=True, kw_only=True)
class SaveStall:
    """What the last save cost: training time and Blob blocks."""

    stall: float  # seconds
    blocks: int


class Saver:
    """Copies this rank's part of each save into a slot and records it in the outbox."""

    def __init__(self, engine: Any, rundir: RunDir, identity: RankIdentity) -> None:  # noqa: ANN401
        self._engine, self._rundir, self._identity = engine, rundir, identity
        # Only sizes are kept: tensors may move, and references would hold their memory.
        self._sizes = {
            tensor_key(f.name, state): f.numel for f in owned_fragments(engine) for state in f.views
        }
        # A thread begins on the first GPU, whichever the process has chosen: to pin memory from
        # there would cost that GPU half a gigabyte for each rank.
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="saver", initializer=_set_device, initargs=(engine.device,)
        )
        # Ahead of the first save, which may be one with 30 seconds to live.
        self._slots = self._thread.submit(self._make_slots)
        self._writing: Future[None] | None = None
        self.cost = SaveStall(stall=0.0, blocks=0)

    @property
    def busy(self) -> bool:
        """Whether a save is in progress; a free slot is then kept for the save of a stop."""
        if self._writing is not None and not self._writing.done():
            return True
        return self._slots.done() and not all(slot.is_free for slot in self._slots.result())

    def save(self, state: TrainingState, randomness: RngState, kind: str) -> None:
        """Copy this rank's state and return; writing continues in a thread."""
        self.wait()
        start = time.perf_counter()
        record = self._record(state, kind)
        slot = self._free_slot()
        if slot is None:
            self._skip(record, OSError(errno.ENOSPC, "there is no room for a copy of the state"))
            return
        fragments = owned_fragments(self._engine)
        self._copy(fragments, slot)
        save = _Save(self._index(fragments, state, randomness), record, slot, state.experience)
        self._writing = self._thread.submit(self._write, save)
        took = time.perf_counter() - start
        blocks = -(-slot.flat.nbytes // BLOCK) * self._identity.world_size
        self.cost = SaveStall(stall=took, blocks=blocks)
        log.info("saving step %d (%s); training waited %.3f s", state.step, kind, took)

    def wait(self) -> None:
        """Wait until nothing is being written; raise what the writing raised."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _make_slots(self) -> list[SaveSlot]:
        """Make the slots; none when memory and disk are full, then the next save retries."""
        pinned = self._engine.device.type == "cuda"
        try:
            return make_slots(self._rundir, self._identity.rank, self._sizes, pinned=pinned)
        except OSError as e:
            if not is_disk_full(e):
                raise
            log.warning("no room for saves: %s", e)
            return []

    def _free_slot(self) -> SaveSlot | None:
        """Return a free slot, after waiting for an upload; None if there is no slot."""
        if not self._slots.result():
            self._rundir.make_room()
            self._slots = self._thread.submit(self._make_slots)
        while slots := self._slots.result():
            for slot in slots:
                if slot.is_free:
                    return slot
            _POLL.wait(POLL_SECONDS)
        return None

    def _copy(self, fragments: Sequence[Fragment], slot: SaveSlot) -> None:
        at = 0
        for fragment in fragments:
            for view in fragment.views.values():
                slot.flat[at : at + fragment.numel].copy_(view.detach(), non_blocking=True)
                at += fragment.numel
        if self._engine.device.type == "cuda":
            torch.cuda.synchronize()

    def _write(self, save: _Save) -> None:
        """Write the save; on a full disk make room and retry once, else give the save up.

        Training on with the previous checkpoint is better than failing.
        """
        folder = self._rundir.save_folder(save.record.path)
        try:
            self._write_with_retry(folder, save)
            self._skip_note(save.record).unlink(missing_ok=True)
        except OSError as e:
            if not is_disk_full(e) and not is_given_up(folder, e):
                raise
            self._skip(save.record, e)

    def _skip(self, record: RankSave, error: OSError) -> None:
        give_up_save(self._rundir.save_folder(record.path))
        why = f"Step {record.step} was not saved, training goes on: {error_with_remedy(error)}"
        log.warning("%s", why)
        with suppress(OSError):  # no space even for that: it is in the log
            write_atomically(self._skip_note(record), why)

    def _skip_note(self, record: RankSave) -> Path:
        return self._rundir.skipped / record.name

    def _write_with_retry(self, folder: Path, save: _Save) -> None:
        try:
            self._write_into(folder, save)
        except OSError as e:
            if not is_disk_full(e):
                raise
            self._rundir.make_room()
            self._write_into(folder, save)

    def _write_into(self, folder: Path, save: _Save) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        rank = self._identity.rank
        tensors = save.slot.link_into(folder, rank)
        index = folder / index_name(rank)
        index.write_text(save.index.to_json(), encoding="utf-8")
        files = [tensors, describe_file(index, index.name)]
        if save.experience:
            answers = folder / answers_name(rank)
            write_answers(save.experience, answers)
            files.append(describe_file(answers, answers.name))
        record = replace(save.record, files=tuple(files), saved_at=time.time())
        write_atomically(folder / record.name, record.to_json())

    def _record(self, state: TrainingState, kind: str) -> RankSave:
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

    def _index(
        self, fragments: Sequence[Fragment], state: TrainingState, randomness: RngState
    ) -> RankIndex:
        me = self._identity
        return RankIndex(
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
                StoredFragment(name=f.name, shape=f.shape, start=f.start, numel=f.numel)
                for f in fragments
            ),
            averaged=any(AVERAGE in f.views for f in fragments),
            kl_beta=state.kl_beta,
            tokens=state.tokens,
            valid_loss_before=state.valid_loss_before,
            losses=state.losses,
            unmoved=state.unmoved,
            loss_scale=loss_scale.read_loss_scale(self._engine),
        )


def give_up_save(folder: Path) -> None:
    """Delete a save and leave a file in its place, which makes other ranks give it up too.

    Other ranks may still be writing: the folder is moved out of the outbox whole, repeatedly, until
    it is not made anew.
    """
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
    for turn in range(GIVE_UP_ATTEMPTS):
        discarded = folder.parent.with_name(f".{folder.name}-{os.getpid()}-{turn}")
        with suppress(OSError):  # another rank was quicker
            if folder.is_dir():
                folder.rename(discarded)
        with suppress(OSError):  # no space even for that
            folder.touch(exist_ok=False)
        _delete(discarded)
        if not folder.is_dir():
            return


def _delete(folder: Path) -> None:
    """Delete a folder; retry while another rank still creates files in it."""
    for _ in range(GIVE_UP_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def is_given_up(folder: Path, error: OSError) -> bool:
    """Return whether another rank of this node gave up the save that was being written."""
    return isinstance(error, FileNotFoundError) or folder.is_file()


def _set_device(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(device)
