"""Parameters partitioned like DeepSpeed's ZeRO stages, their checkpoints, and fragments to fill.

The value of each element follows from parameter, state and position, so that a load can be checked.
"""

import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from awscrt import checksums
from azure.storage.blob import ContainerClient

from tests.nodes.forged import forged
from tests.nodes.scripted_node import committed
from tests.nodes.supervised import Job
from trainer.checkpoint.checksum import format_crc
from trainer.checkpoint.fragments import STATES, Fragment
from trainer.checkpoint.index import FORMAT, RankIndex, StoredFragment, index_name, tensor_key
from trainer.checkpoint.rng_state import RngState
from trainer.checkpoint.safetensors_file import build_header
from trainer.contract import MANIFEST, Committed, FileEntry, Manifest, checkpoint_path
from trainer.rundir import tensors_name

SPEC_SHA256 = "5" * 64
Sizes = Mapping[str, int]  # number of elements by parameter
Cut = Callable[[Sizes, int, int], list[StoredFragment]]  # partition of a rank in a world
NO_RANDOMNESS = RngState(python=(1,), numpy_key=(1,), numpy_position=0, torch_cpu="", torch_cuda="")


def flat(sizes: Sizes, rank: int, world: int) -> list[StoredFragment]:
    """Partition like ZeRO 1 and 2: all parameters concatenated, cut into even ranges."""
    width = -(-sum(sizes.values()) // world)
    tensors, at = [], 0
    for name, numel in sizes.items():
        start, end = max(at, rank * width), min(at + numel, (rank + 1) * width)
        if start < end:
            tensors.append(_stored(name, numel, start - at, end - start))
        at += numel
    return tensors


def split(sizes: Sizes, rank: int, world: int) -> list[StoredFragment]:
    """Partition like ZeRO 3: each parameter cut into even ranges."""
    tensors = []
    for name, numel in sizes.items():
        width = -(-numel // world)
        start, end = rank * width, min(numel, (rank + 1) * width)
        if start < end:
            tensors.append(_stored(name, numel, start, end - start))
    return tensors


def shares(sizes: Sizes, rank: int, world: int) -> list[StoredFragment]:
    """Partition like ZeRO 0: a share of each parameter, which may be empty."""
    cuts = {n: (numel * rank // world, numel * (rank + 1) // world) for n, numel in sizes.items()}
    return [_stored(n, sizes[n], start, end - start) for n, (start, end) in cuts.items()]


def values(name: str, state: str, start: int, numel: int) -> torch.Tensor:
    """Return elements of one state of a parameter."""
    seed = zlib.crc32(f"{name}/{state}".encode()) % 100_000
    return torch.arange(start, start + numel, dtype=torch.float32) + seed


def empty(stored: list[StoredFragment]) -> list[Fragment]:
    """Return an engine's fragments with zeros, to be filled."""
    return [
        Fragment(s.name, s.shape, s.start, {state: torch.zeros(s.numel) for state in STATES})
        for s in stored
    ]


def is_filled(fragments: list[Fragment]) -> bool:
    """Return whether every element has its expected value."""
    return all(
        torch.equal(view, values(f.name, state, f.start, f.numel))
        for f in fragments
        for state, view in f.views.items()
    )


def files_of(cut: Cut, sizes: Sizes, world: int) -> dict[str, bytes]:
    """Return the files that the ranks of a world save: tensors and indexes."""
    files = {}
    for rank in range(world):
        stored = cut(sizes, rank, world)
        index = RankIndex(
            format=FORMAT,
            rank=rank,
            world_size=world,
            step=10,
            consumed_samples=80,
            optimizer_step=10,
            run_spec_sha256=SPEC_SHA256,
            metrics=None,
            randomness=NO_RANDOMNESS,
            fragments=tuple(stored),
        )
        files[index_name(rank)] = index.to_json().encode()
        files[tensors_name(rank)] = tensors_of(stored)
    return files


def tensors_of(stored: list[StoredFragment]) -> bytes:
    """Return the tensor file of a rank, in the layout of a slot."""
    data = [values(s.name, state, s.start, s.numel) for s in stored for state in STATES]
    return build_header(sizes_of(stored)) + b"".join(view.numpy().tobytes() for view in data)


def sizes_of(stored: list[StoredFragment]) -> dict[str, int]:
    """Return the number of elements of each tensor in a rank's file."""
    return {tensor_key(s.name, state): s.numel for s in stored for state in STATES}


def manifest_of(
    files: Mapping[str, bytes], world: int, block_size: int, step: int = 10
) -> Manifest:
    """Return the manifest of these files; a positive ``block_size`` splits tensors into blocks."""
    entries = [_entry(name, data, block_size) for name, data in sorted(files.items())]
    return Manifest(
        step=step,
        consumed_samples=80,
        world_size=world,
        generation=1,
        kind="periodic",
        files=tuple(entries),
        run_spec_sha256=SPEC_SHA256,
        saved_at=0.0,
    )


def commit(
    client: ContainerClient,
    path: str,
    files: Mapping[str, bytes],
    world: int,
    block_size: int,
    flipped: Mapping[str, int],
    *,
    forging: bool = False,
    step: int = 10,
) -> tuple[Committed, Manifest]:
    """Upload a checkpoint to Blob and return its entry and manifest.

    Args:
        client: Client of the job's container.
        path: Folder of the checkpoint.
        files: Content of the files by name.
        world: Number of ranks.
        block_size: Bytes of a tensor block; 0 for whole files.
        flipped: Positions of a byte to corrupt, by file name.
        forging: Adapt other bytes too, so that size and CRCs match the manifest.
        step: Step after which it was saved.
    """
    manifest = manifest_of(files, world, block_size, step)
    entries = []
    for entry in manifest.files:
        data = bytearray(files[entry.name])
        if entry.name in flipped and forging:
            data = bytearray(forged(bytes(data), flipped[entry.name], block_size))
        elif entry.name in flipped:
            data[flipped[entry.name]] ^= 1
        blob = client.upload_blob(f"{path}/{entry.name}", bytes(data))
        entries.append(replace(entry, etag=blob.get_blob_properties().etag.strip('"')))
    manifest = replace(manifest, files=tuple(entries))
    body = manifest.to_json().encode()
    client.upload_blob(f"{path}/{MANIFEST}", body)
    digest = hashlib.sha256(body).hexdigest()
    base = committed(step, 1)
    return replace(base, path=path, world_size=world, manifest_sha256=digest), manifest


def commit_newest(
    job: Job,
    files: Mapping[str, bytes],
    flipped: Mapping[str, int] | None = None,
    *,
    step: int = 10,
    world: int = 1,
    block_size: int = 0,
) -> Committed:
    """Upload a checkpoint of generation 1 and make it the newest one in HEAD."""
    path = checkpoint_path(step, "0badcafe")
    entry, _ = commit(job.container, path, files, world, block_size, flipped or {}, step=step)
    job.write_head(job.head().fenced(1).with_checkpoint(entry))
    return entry


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files to a folder."""
    for name, data in files.items():
        (folder / name).write_bytes(data)


def _stored(name: str, size: int, start: int, numel: int) -> StoredFragment:
    return StoredFragment(name=name, shape=(size,), start=start, numel=numel)


def _entry(name: str, data: bytes, block_size: int) -> FileEntry:
    crc = format_crc(checksums.crc64nvme(data))
    entry = FileEntry(name=name, size=len(data), etag="", crc64nvme=crc)
    if not block_size or name == index_name(int(name[5:10])):
        return replace(entry, sha256=hashlib.sha256(data).hexdigest())
    parts = [data[at : at + block_size] for at in range(0, len(data), block_size)]
    blocks = tuple(format_crc(checksums.crc64nvme(block)) for block in parts)
    hashes = tuple(hashlib.sha256(block).hexdigest() for block in parts)
    return replace(entry, block_size=block_size, blocks=blocks, block_sha256=hashes)
