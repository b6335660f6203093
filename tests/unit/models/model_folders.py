"""Folders of models that are broken in one way each, made from a whole one."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Weights = dict[str, torch.Tensor]
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def copy_of(base: Path, folder: Path) -> Path:
    """Copy a model folder, so that a test may break the copy."""
    shutil.copytree(base, folder)
    return folder


def rewrite(folder: Path, change: Callable[[Weights], Weights | None]) -> None:
    """Change the tensors of the single file."""
    weights = load_file(folder / SINGLE)
    weights = change(weights) or weights
    save_file({n: t.contiguous() for n, t in weights.items()}, folder / SINGLE, {"format": "pt"})


def set_members(path: Path, **members: Any) -> None:  # noqa: ANN401 - JSON
    """Set members of a JSON file; None removes one."""
    data = json.loads(path.read_text()) | members
    path.write_text(json.dumps({k: v for k, v in data.items() if v is not None}))


def shard(folder: Path) -> dict[str, str]:
    """Cut the single file in two, with an index; return its map."""
    weights = load_file(folder / SINGLE)
    (folder / SINGLE).unlink()
    names = sorted(weights)
    parts = {FIRST: names[:15], SECOND: names[15:]}
    for file, inside in parts.items():
        save_file({n: weights[n] for n in inside}, folder / file, {"format": "pt"})
    index = {name: file for file, inside in parts.items() for name in inside}
    write_index(folder, index)
    return index


def write_index(folder: Path, index: dict[str, str]) -> None:
    """Write the index of this map."""
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))


def rewrite_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the header of a safetensors file and leave its data."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def add_token(folder: Path, content: str, number: int) -> None:
    """Give the tokenizer one more token."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    token = {"id": number, "content": content, "special": False, **flags}
    tokenizer["added_tokens"].append(token)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
