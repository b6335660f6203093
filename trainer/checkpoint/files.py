"""Writing the files of a save: a flat buffer as safetensors, checksums on the way."""

import json
from pathlib import Path

import torch
from awscrt import checksums

from trainer.checksum import CHUNK, describe
from trainer.rundir import SavedFile


def write_tensors(path: Path, sizes: dict[str, int], flat: torch.Tensor) -> SavedFile:
    """Write ``flat`` as a safetensors file of one-dimensional fp32 tensors of these sizes.

    Nothing is copied: after the header the buffer is written as it lies. No fsync either:
    a power cut takes the whole node, and the checksum tells a torn file from a good one.
    """
    header = _header(sizes)
    crc = checksums.crc64nvme(header)
    data = memoryview(flat.numpy()).cast("B") if flat.numel() else memoryview(b"")
    with path.open("wb") as f:
        f.write(header)
        for at in range(0, len(data), CHUNK):
            chunk = data[at : at + CHUNK]
            f.write(chunk)
            crc = checksums.crc64nvme(chunk, crc)
    return SavedFile(name=path.name, size=len(header) + len(data), crc64nvme=f"{crc:016x}")


def write_text(path: Path, text: str) -> SavedFile:
    """Write a small file."""
    path.write_text(text, encoding="utf-8")
    return describe(path, path.name)


def _header(sizes: dict[str, int]) -> bytes:
    entries, at = {}, 0
    for name, numel in sizes.items():
        entries[name] = {"dtype": "F32", "shape": [numel], "data_offsets": [at, at + 4 * numel]}
        at += 4 * numel
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight
    return len(text).to_bytes(8, "little") + text
