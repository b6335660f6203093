# /// script
# dependencies = ["numpy"]
# ///
"""Read a checkpoint without Rekindle: `python read_checkpoint.py FOLDER`.

FOLDER is a copy of a job's container or one checkpoint's folder. All digests are verified. As a
module: `for name, states in parameters(*verified(FOLDER))` gives one parameter at a time; states
are "master", "exp_avg", "exp_avg_sq", fp32 arrays in its shape. The format: checkpoint-format.md.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

U64, ONES = np.uint64, np.uint64(2**64 - 1)
BITS = U64(1) << np.arange(64, dtype=U64)
LANES, CHUNK = 1 << 13, 1 << 24  # bytes are summed in many lanes side by side
TABLE = np.arange(1 << 16, dtype=U64)  # of CRC-64/NVME, two bytes at a time
for _ in range(16):
    TABLE = (TABLE >> U64(1)) ^ (U64(0x9A6C9329AC4BC9B5) * (TABLE & U64(1)))


def apply(matrix: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Every word times a 64 x 64 matrix of bits, which is given as the images of the 64 bits."""
    product = np.zeros_like(words)
    for bit in range(64):
        product ^= matrix[bit] * ((words >> U64(bit)) & U64(1))
    return product


SKIPS = [TABLE[(BITS & U64(255)) << U64(8)] ^ (BITS >> U64(8))]  # 1, 2, 4, ... zero bytes more
while len(SKIPS) < 25:
    SKIPS.append(apply(SKIPS[-1], SKIPS[-1]))


def crc64nvme(path: Path) -> str:
    """CRC-64/NVME of a file as 16 hex digits: lanes side by side, then joined two by two."""
    total = np.array([ONES])
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            level = max(1, ((len(chunk) - 1) // LANES).bit_length())  # a lane has 2^level bytes
            padded = np.frombuffer(chunk.rjust(LANES << level, b"\0"), "<u2")
            sums = np.zeros(LANES, U64)
            for column in np.ascontiguousarray(padded.reshape(LANES, -1).T):
                sums = TABLE[(sums ^ column) & U64(0xFFFF)] ^ (sums >> U64(16))
            while len(sums) > 1:
                sums, level = apply(SKIPS[level], sums[0::2]) ^ sums[1::2], level + 1
            for power, skip in enumerate(SKIPS):
                total = apply(skip, total) if len(chunk) >> power & 1 else total
            total ^= sums
    return f"{int(total[0] ^ ONES):016x}"


def sha256(path: Path, size: int) -> list[str]:
    """SHA-256 of each block of this size; of the whole file where it is negative."""
    with path.open("rb") as file:
        return [hashlib.sha256(part).hexdigest() for part in iter(lambda: file.read(size), b"")]


def verified(folder: str | Path) -> tuple[Path, list[dict]]:
    """Return the checkpoint's folder and every rank's index, after verifying all digests."""
    folder, told = Path(folder), None
    if (folder / "HEAD").exists():
        entry = json.loads((folder / "HEAD").read_bytes())["checkpoints"][-1]
        folder, told = folder / entry["path"], entry["manifest_sha256"]
    manifest = json.loads(raw := (folder / "manifest.json").read_bytes())
    if told not in (None, hashlib.sha256(raw).hexdigest()):
        raise ValueError(f"{folder}/manifest.json is not the one that HEAD names")
    for file in manifest["files"]:
        path, told = folder / file["name"], file.get("block_sha256") or [file.get("sha256")]
        right = crc64nvme(path) == file["crc64nvme"]
        if not right or told not in ([None], sha256(path, file.get("block_size", -1))):
            raise ValueError(f"{path} is damaged")
    names = [folder / f"rank-{rank:05d}.index.json" for rank in range(manifest["world_size"])]
    indexes = [json.loads(name.read_bytes()) for name in names]
    assert all(index["format"] == 1 for index in indexes), "this program reads format 1 only"
    return folder, indexes


def parameters(folder: Path, indexes: list[dict]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Every trained parameter whole, by name; ValueError when a part of one is in no file."""
    pieces: dict[str, list[tuple[int, dict]]] = {}
    for rank, piece in ((i["rank"], piece) for i in indexes for piece in i["fragments"]):
        pieces.setdefault(piece["name"], []).append((rank, piece))
    paths = {r: folder / f"rank-{r:05d}.safetensors" for r in range(len(indexes))}
    begins = {r: 8 + int(np.fromfile(path, "<u8", 1)[0]) for r, path in paths.items()}
    texts = {r: np.fromfile(path, "u1", begins[r] - 8, offset=8) for r, path in paths.items()}
    headers = {r: json.loads(text.tobytes()) for r, text in texts.items()}
    for name, parts in sorted(pieces.items()):
        shape = parts[0][1]["shape"]
        states = {s: np.zeros(shape, "<f4") for s in ("master", "exp_avg", "exp_avg_sq")}
        if sum(piece["numel"] for _, piece in parts) != np.prod(shape, dtype=int):
            raise ValueError(f"{name} is not whole")
        for (rank, piece), (state, whole) in ((p, s) for p in parts for s in states.items()):
            at = begins[rank] + headers[rank][f"{name}|{state}"]["data_offsets"][0]
            found = np.fromfile(paths[rank], "<f4", piece["numel"], offset=at)
            whole.reshape(-1)[piece["start"] :][: piece["numel"]] = found
        yield name, states


if __name__ == "__main__":
    for key, value in parameters(*verified(sys.argv[1])):
        norms = (f"{state} {np.linalg.norm(array):.6g}" for state, array in value.items())
        print(key, value["master"].shape, *norms)  # noqa: T201
