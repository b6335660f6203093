"""Read names, types and shapes of a model's tensors from the headers of its safetensors files.

Reads the files that transformers would load: model.safetensors, or else the shards of its index. No
weight is read, so a model of any size takes a moment. Standard library only: staging runs it where
torch is not installed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
LFS = b"version https://git-lfs"  # what a clone without Git LFS has in place of a file
LONGEST_HEADER = 100_000_000  # bytes, the limit of the safetensors library
AGAIN = "Copy the whole file into the folder and stage the model again."
BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


class UnusableModelError(ValueError):
    """The folder holds no loadable model; the text names the file and the remedy."""

    @classmethod
    def because(cls, error: Exception, summary: str, remedy: str) -> "UnusableModelError":
        """Say in two sentences what failed, with the first line of the library's error."""
        lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
        why = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
        return cls(f"{summary} ({why.rstrip('.').replace('. ', '; ')}). {remedy}")


@dataclass(frozen=True, kw_only=True)
class TensorHeader:
    """One tensor in a header; ``begin`` is its first byte in the file."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    size: int


def read_weights(folder: Path) -> dict[str, TensorHeader]:
    """Return the tensors that transformers would load from the folder, by name.

    Raises UnusableModel for a shard that is absent and for a file that is no whole safetensors
    file. Where two shards hold a tensor, the later one counts, as in transformers.
    """
    if (folder / SINGLE).is_file():
        return read_header(folder / SINGLE)
    shards = sorted(set(read_index(folder).values()))
    if absent := [shard for shard in shards if not (folder / shard).is_file()]:
        suffix = f" and {len(absent) - 1} more shards" if absent[1:] else ""
        raise UnusableModelError(
            f"{INDEX} names {absent[0]}{suffix}, absent from the folder, so their tensors would be "
            f"random. {AGAIN}"
        )
    return {name: t for shard in shards for name, t in read_header(folder / shard).items()}


def read_index(folder: Path) -> dict[str, str]:
    """Return the index's map of tensors to shards, or raise UnusableModel."""
    if not (folder / INDEX).is_file():
        raise UnusableModelError(
            f"the folder has neither {SINGLE} nor {INDEX}: transformers loads no other weights. "
            "Save the model with save_pretrained, or copy the missing file."
        )
    shards = read_json(folder / INDEX).get("weight_map")
    shards = shards if isinstance(shards, dict) else {}
    names = shards.values()
    if not names or not all(isinstance(n, str) and n == Path(n).name for n in names):
        raise UnusableModelError(
            f"{INDEX} has no usable weight_map: it must map each tensor to a file of this folder. "
            f"{AGAIN}"
        )
    return dict(shards)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in the file, or raise UnusableModel."""
    data = path.read_bytes()
    if data.startswith(LFS):
        raise UnusableModelError(_pointer(path))
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnusableModelError(f"{path.name} is not JSON ({error}). {AGAIN}") from None
    if not isinstance(document, dict):
        raise UnusableModelError(f"{path.name} holds no JSON object. {AGAIN}")
    return document


def read_header(path: Path) -> dict[str, TensorHeader]:
    """Return the tensors of one safetensors file, or raise UnusableModel."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        start = stream.read(8)
        length = int.from_bytes(start, "little")
        if start == LFS[:8]:
            raise UnusableModelError(_pointer(path))
        if not 2 <= length <= min(size - 8, LONGEST_HEADER):
            raise UnusableModelError(
                f"{path.name} is not a safetensors file, or it was cut short. {AGAIN}"
            )
        text = stream.read(length)
    try:
        header = json.loads(text, object_pairs_hook=_without_duplicates)
        header.pop("__metadata__", None)
        tensors = {n: _tensor(path.name, 8 + length, d) for n, d in header.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UnusableModelError(
            f"{path.name} is not a safetensors file: its header makes no sense ({error}). {AGAIN}"
        ) from None
    _require_layout(path.name, size, 8 + length, tensors)
    return tensors


def encode_header(entries: Mapping[str, object]) -> bytes:
    """Return the beginning of a file whose header has these entries.

    The tensors after it begin at a multiple of eight.
    """
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _tensor(file: str, data: int, entry: Any) -> TensorHeader:  # noqa: ANN401 - JSON of anyone
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise ValueError("a shape or an offset is no whole number")
    return TensorHeader(
        file=file, dtype=str(entry["dtype"]), shape=shape, begin=data + begin, size=end - begin
    )


def _require_layout(file: str, size: int, data: int, tensors: dict[str, TensorHeader]) -> None:
    """Refuse tensors that overlap, leave gaps, end outside the file or have the wrong size."""
    for name, tensor in tensors.items():
        if tensor.begin + tensor.size > size:
            raise UnusableModelError(
                f"{file} was cut short: {name} ends at byte {tensor.begin + tensor.size} of "
                f"{size}. {AGAIN}"
            )
        if tensor.size * 8 != _bits(tensor):
            raise UnusableModelError(
                f"{file} is damaged: {name} ({tensor.dtype} {list(tensor.shape)}) has "
                f"{tensor.size} bytes. {AGAIN}"
            )
    ranges = sorted((t.begin, t.begin + t.size, name) for name, t in tensors.items())
    edges = [(data, data, "the header"), *ranges, (size, size, "the end of the file")]
    for (_, end, before), (begin, _, name) in pairwise(edges):
        if begin != end:
            fault = "overlap" if begin < end else "have unused bytes between them"
            raise UnusableModelError(f"{file} is damaged: {before} and {name} {fault}. {AGAIN}")


def _bits(tensor: TensorHeader) -> int:
    """Return the size by type and shape; -1 for a type that safetensors does not know."""
    if tensor.dtype not in BITS:
        return -1
    count = BITS[tensor.dtype]
    for length in tensor.shape:
        count *= length
    return count


def _without_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("it names a tensor twice")
    return members


def _pointer(path: Path) -> str:
    return (
        f"{path.name} is a Git LFS pointer, not the file itself. Run `git lfs pull` in the folder."
    )


def first_names(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of the others, for messages."""
    remaining = len(names) - most
    return ", ".join(names[:most]) + (f" and {remaining} more" if remaining > 0 else "")
