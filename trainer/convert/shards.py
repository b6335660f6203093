"""Write safetensors files tensor by tensor, with one tensor in memory."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from trainer.model.safetensors_headers import encode_header

LIMIT = 5 * 10**9  # bytes of tensors in one file; transformers splits there too
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
Shapes = Mapping[str, tuple[int, ...]]


def write_model(
    folder: Path,
    shapes: Shapes,
    dtype: torch.dtype,
    read: Callable[[str], torch.Tensor],
    limit: int = LIMIT,
) -> None:
    """Write ``model.safetensors``, or several files and their index if it would be too large."""
    shards = list(_parts(shapes, dtype.itemsize, limit))
    if len(shards) == 1:
        write_file(folder / "model.safetensors", shards[0], dtype, read)
        return
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_file(folder / file, shard, dtype, read)
        weight_map |= dict.fromkeys(shard, file)
    total = sum(_numel(shape) for shape in shapes.values()) * dtype.itemsize
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def write_file(
    path: Path, shapes: Shapes, dtype: torch.dtype, read: Callable[[str], torch.Tensor]
) -> None:
    """Write one file with these tensors, reading and converting each in turn."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        end = at + _numel(shape) * dtype.itemsize
        header[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    with path.open("wb") as file:
        file.write(encode_header(header))
        for name, shape in shapes.items():
            tensor = read(name).to(dtype).contiguous()
            if tuple(tensor.shape) != tuple(shape):
                raise ValueError(f"{name}: its shape is {tuple(tensor.shape)}, not {tuple(shape)}")
            file.write(memoryview(tensor.view(-1).view(torch.uint8).numpy()))


def _parts(shapes: Shapes, itemsize: int, limit: int) -> Iterator[dict[str, tuple[int, ...]]]:
    shard: dict[str, tuple[int, ...]] = {}
    size = 0
    for name, shape in shapes.items():
        nbytes = _numel(shape) * itemsize
        if shard and size + nbytes > limit:
            yield shard
            shard, size = {}, 0
        shard[name] = shape
        size += nbytes
    yield shard


def _numel(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
