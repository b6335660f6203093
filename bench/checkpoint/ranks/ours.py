"""Contestant "rekindle": the trainer's saver, and the supervisor's upload and commit."""

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch.distributed as dist

from bench.checkpoint.case import CheckpointCase
from bench.checkpoint.ranks.contestant import Local
from bench.checkpoint.ranks.engine import State
from bench.checkpoint.ranks.node import (
    GENERATION,
    SPEC_SHA256,
    committed_file,
    memory_of,
)
from trainer import state as trainer_state
from trainer.checkpoint import rng_state
from trainer.checkpoint.loader import load_checkpoint, open_checkpoint
from trainer.checkpoint.saver import Saver
from trainer.contract import MANIFEST
from trainer.rundir import RunDir, drop_checkpoint, write_atomically

POLL_SECONDS = 0.005
TIMEOUT = 120.0


class Rekindle(Local):
    """Rekindle's save and load; rank 0 also starts the node's supervisor process."""

    isolated = True

    def __init__(self, case: CheckpointCase, state: State) -> None:
        super().__init__(case, state)
        self._node = _start_node(self.root) if state.rank == 0 else None
        self.helpers: Sequence[int] = [self._node.pid] if self._node else []
        self._thread = ThreadPoolExecutor(1)
        self._identity = trainer_state.RankIdentity(
            rank=state.rank,
            local_rank=state.rank,
            world_size=state.ranks,
            generation=GENERATION,
            run_spec_sha256=SPEC_SHA256,
            nonce="bench",
        )
        dist.barrier()  # the node has created its memory folder
        if not case.load_only:
            self._saver = Saver(state.engine, RunDir(self.root), self._identity)
        dist.barrier()

    def save(self, number: int) -> "Future[None]":
        """Save a checkpoint; blocks for the copy into the host buffer."""
        at = trainer_state.TrainingState(step=number, consumed_samples=number)
        self._saver.save(at, rng_state.capture_rng(), "periodic")
        return self._thread.submit(_wait_for_path, committed_file(self.root, number))

    def load(self, number: int) -> None:
        """Load a checkpoint.

        The supervisor downloads and verifies blocks, and the ranks copy them as they arrive.
        """
        rundir = RunDir(self.root)
        if self._node:
            assert self._node.stdin
            self._node.stdin.write(f"load {number}\n")
            self._node.stdin.flush()
        _wait_for_path(rundir.checkpoint / MANIFEST)
        ranges_path = rundir.wanted_ranges(self.state.rank)
        load_checkpoint(
            self.state.engine,
            open_checkpoint(rundir.checkpoint, SPEC_SHA256),
            1,
            self._identity,
            lambda ranges: write_atomically(ranges_path, ranges.to_json()),
        )
        dist.barrier()
        if self._node:
            _wait_for_word(self._node, "loaded")
            drop_checkpoint(rundir.checkpoint)
            rundir.checkpoint.unlink()
            shutil.rmtree(ranges_path.parent)

    def close(self) -> None:
        """Close the supervisor's standard input and wait for its end."""
        self._thread.shutdown()
        if self._node:
            assert self._node.stdin
            self._node.stdin.close()
            self._node.wait(timeout=TIMEOUT)
            shutil.rmtree(memory_of(self.root), ignore_errors=True)


def _start_node(root: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "bench.checkpoint.ranks.node", str(root / "case.json")]
    node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _wait_for_word(node, "ready")
    return node


def _wait_for_word(node: "subprocess.Popen[str]", word: str) -> None:
    assert node.stdout
    if node.stdout.readline() != f"{word}\n":
        raise RuntimeError(f"the supervisor ended before it was {word}")


def _wait_for_path(path: Path) -> None:
    latest = time.monotonic() + TIMEOUT
    while not path.exists():
        if time.monotonic() > latest:
            raise TimeoutError(f"{path.name} did not come within {TIMEOUT:.0f} s")
        time.sleep(POLL_SECONDS)
