"""Stand-in for torchrun and the trainer: obeys the files of rundir.py, and trains nothing.

    python standin_trainer.py MODE RUN_FOLDER LOG_FOLDER WORLD_FOLDER FIRST_RANK RANKS

All local ranks are this one process. Nodes agree to stop through a file in WORLD_FOLDER, as real
ranks do by an all-reduce. Its save is always 10 steps after the one it started from.
"""

import hashlib
import subprocess
import sys
import threading
import time
from pathlib import Path

from awscrt import checksums

from trainer.checkpoint.partial_tensors import BlockState, PartialTensors
from trainer.contract import (
    MANIFEST,
    Generation,
    Manifest,
    Span,
    StepMetrics,
    checkpoint_path,
    model_path,
)
from trainer.rundir import (
    ByteRange,
    OutOfMemoryMark,
    RankResult,
    RankSave,
    RunDir,
    SavedFile,
    WantedRanges,
    rank_record,
    write_atomically,
)

STEP_SECONDS = 0.02
FINAL_STEPS = 10


def main() -> int:
    """Train until told to stop, or for FINAL_STEPS steps when MODE is "finish"."""
    mode_argument, root, logs, world, first, count = sys.argv[1:]
    mode, _, size = mode_argument.partition(":")  # "once:BYTES": one periodic save, of that size
    folder = RunDir(Path(root))
    ranks = range(int(first), int(first) + int(count))
    generation = Generation.from_json(folder.generation.read_bytes())
    begin = generation.checkpoint.step if generation.checkpoint else 0
    say(Path(logs), len(ranks), f"generation {generation.number} starts at step {begin}\n")
    wait_for(folder.ready)
    stops = Path(world) / f"stop-{generation.number}"
    if fails(mode, folder, Path(logs), ranks):
        return 1
    if mode == "orphan":
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    if generation.checkpoint:
        load(folder, ranks, mode)
    lay_slot(folder, size)
    step = begin
    while mode not in {"finish", "wrong"} or step < begin + FINAL_STEPS:
        step += 1
        if step % 10 == 0 and (mode in {"saves", "half"} or (mode, step) == ("once", begin + 10)):
            save_now(folder, generation, ranks, step, torn=mode == "half" and step > begin + 10)
        report(folder, step, first=ranks[0] == 0)
        if folder.stop.exists():
            stops.touch()
        if stops.exists() and mode != "orphan":
            break
        threading.Event().wait(STEP_SECONDS)
    if mode == "slow":
        threading.Event().wait(1.0)
    if mode == "wrong":
        save_now(folder, generation, ranks, step, torn=False)
        write_atomically(folder.non_retryable(ranks[-1]), "verification failed: the scale is wrong")
        return 1
    outcome = "finished" if mode == "finish" else "stopped"
    last = (step // 10 + 1) * 10 if mode in {"saves", "once"} else begin + 10
    end(folder, generation, ranks, last, outcome=outcome, torn=mode == "torn")
    return 1  # torchrun's exit status tells nothing


def fails(mode: str, folder: RunDir, logs: Path, ranks: range) -> bool:
    """Return whether MODE fails at once, and report the failure as a trainer does."""
    if mode == "crash":
        say(logs, len(ranks), "ValueError: the loss is not a number\n")
    elif mode == "no port":
        sys.stdout.write("DistNetworkError: code: -98, name: EADDRINUSE\n")
    elif mode == "no memory":
        mark = OutOfMemoryMark(
            message="CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has 80 GiB.",
            micro_batch=2,
            gradient_checkpointing=False,
            peak=1,
        )
        write_atomically(folder.out_of_memory(ranks[-1]), mark.to_json())
    elif mode == "non_retryable":
        write_atomically(folder.non_retryable(ranks[-1]), "line 3 has no answer; mend it")
    elif mode == "slow links":
        write_atomically(folder.unhealthy(ranks[-1]), "all-reduce reaches 9 GB/s")
    return mode in {"crash", "no port", "no memory", "non_retryable", "slow links"}


def wait_for(path: Path) -> None:
    """Wait until the supervisor has written ``path``."""
    while not path.exists():
        threading.Event().wait(0.005)


def load(folder: RunDir, ranks: range, mode: str) -> None:
    """Wait for the checkpoint; in mode "loads" also request all its tensors for every rank."""
    wait_for(folder.checkpoint)
    if mode != "loads":
        return
    manifest = Manifest.from_json((folder.checkpoint / MANIFEST).read_bytes())
    files = [file for file in manifest.files if file.blocks]
    ranges = tuple(ByteRange(file=file.name, begin=0, end=file.size) for file in files)
    for rank in ranks:
        write_atomically(folder.wanted_ranges(rank), WantedRanges(ranges=ranges).to_json())
    for file in files:
        coming = PartialTensors(folder.checkpoint / file.name, file)
        while BlockState.MISSING in map(coming.block_state, range(len(file.blocks))):
            threading.Event().wait(0.005)


def lay_slot(folder: RunDir, size: str) -> None:
    """Write a memory slot of ``size`` bytes, if a size is given."""
    if size:
        (folder.memory / "rank-00000.a").write_bytes(bytes(int(size)))


def save_now(
    folder: RunDir, generation: Generation, ranks: range, step: int, *, torn: bool
) -> None:
    """Save periodically, unless two saves are pending; ``torn`` omits the record."""
    outbox = folder.outbox
    if outbox.is_dir() and sum(p.is_dir() for p in outbox.iterdir()) >= 2:
        return
    path = checkpoint_path(step, f"g{generation.number}")
    for rank in ranks:
        if torn:
            write_atomically(folder.save_folder(path) / f"rank-{rank:05d}.bin", b"half")
        else:
            save(folder, generation, rank, step, path, generation.world_size, "periodic")


def end(
    folder: RunDir, generation: Generation, ranks: range, step: int, *, outcome: str, torn: bool
) -> None:
    """Save as every rank would, and write the results."""
    for rank in ranks:
        if not torn:
            path = checkpoint_path(step, f"g{generation.number}")
            save(folder, generation, rank, step, path, generation.world_size, "stop")
        if outcome == "finished" and rank == 0:
            path = model_path(step, f"g{generation.number}m")
            save(folder, generation, rank, step, path, 1, "final")
        write_atomically(folder.result(rank), RankResult(how=outcome, step=step).to_json())


def save(
    folder: RunDir, generation: Generation, rank: int, step: int, path: str, writers: int, kind: str
) -> None:
    """Write one rank's part of a save: a data file, then the record."""
    slot = folder.memory / "rank-00000.a"
    data = f"rank {rank} at step {step} of generation {generation.number}\n".encode() * 1000
    data = data.ljust(slot.stat().st_size if slot.exists() else 0, b".")
    name = f"rank-{rank:05d}.bin"
    write_atomically(folder.save_folder(path) / name, data)
    crc, digest = f"{checksums.crc64nvme(data):016x}", hashlib.sha256(data).hexdigest()
    record = RankSave(
        path=path,
        rank=rank,
        writers=writers,
        step=step,
        consumed_samples=step * 4,
        world_size=generation.world_size,
        generation=generation.number,
        kind=kind,
        saved_at=time.time(),
        files=(SavedFile(name=name, size=len(data), crc64nvme=crc, sha256=digest),),
        parameters_sha256="ab" * 32 if kind == "final" else "",
    )
    write_atomically(folder.save_folder(path) / rank_record(rank), record.to_json())


def report(folder: RunDir, step: int, *, first: bool) -> None:
    """Write the progress, and from rank 0 the metrics."""
    write_atomically(folder.progress, str(step))
    now = time.time()
    if not first:
        return
    metrics = StepMetrics(
        step=step, loss=1.0, learning_rate=0.1, grad_norm=1.0, tokens=8, seconds=0.02, at=now
    )
    with folder.metrics.open("a") as file:
        file.write(metrics.to_json() + "\n")
    if not folder.spans.exists():
        span = Span(name="load", started_at=now, ended_at=now)
        folder.spans.write_text(span.to_json() + "\n")


def say(logs: Path, ranks: int, text: str) -> None:
    """Append text to the log of every local rank, where torchrun would redirect it."""
    for local in range(ranks):
        folder = logs / "standin" / "attempt_0" / str(local)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "stdout.log").open("a") as file:
            file.write(text)


if __name__ == "__main__":
    sys.exit(main())
