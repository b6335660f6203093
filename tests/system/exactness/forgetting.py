"""Checkpoints that lack one thing: what a resume needs shows when it is gone."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer.checkpoint.answers import SUFFIX
from trainer.checkpoint.safetensors_file import TensorLayout
from trainer.contract import MANIFEST, Manifest
from trainer.rundir import TENSORS


def randomness(checkpoint: Path) -> None:
    """Give each of two ranks the other's generators: its own are lost."""
    states = [json.loads(path.read_text())["randomness"] for path in _indexes(checkpoint)]
    for path, other_state in zip(_indexes(checkpoint), reversed(states), strict=True):
        _edit(path, {"randomness": other_state})
    _tell_sizes(checkpoint)


def data_cursor(checkpoint: Path) -> None:
    """Begin with the first rows again."""
    _change_indexes(checkpoint, {"consumed_samples": 0})


def penalty(checkpoint: Path) -> None:
    """Forget what the controller has made of the KL penalty's weight."""
    _change_indexes(checkpoint, {"kl_beta": None})


def loss_scale(checkpoint: Path) -> None:
    """Begin with fp16's first loss scale again."""
    _change_indexes(checkpoint, {"loss_scale": None})


def answers(checkpoint: Path) -> None:
    """Forget the answers that wait and the old ones."""
    for path in checkpoint.glob(f"*{SUFFIX}"):
        path.unlink()
    _tell_sizes(checkpoint)


def moments(checkpoint: Path) -> None:
    """Begin the first moments anew."""
    _fill(checkpoint, "exp_avg", lambda tensors: bytes(len(tensors["exp_avg"])))


def average(checkpoint: Path) -> None:
    """Begin the moving average anew, from the weights as they are."""
    _fill(checkpoint, "average", lambda tensors: tensors["master"])


FORGET: dict[str, Callable[[Path], None]] = {
    forget.__name__: forget
    for forget in (randomness, data_cursor, penalty, loss_scale, answers, moments, average)
}


def _indexes(checkpoint: Path) -> list[Path]:
    return sorted(checkpoint.glob("rank-?????.index.json"))


def _change_indexes(checkpoint: Path, members: dict[str, Any]) -> None:
    for path in _indexes(checkpoint):
        _edit(path, members)
    _tell_sizes(checkpoint)


def _edit(path: Path, members: dict[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | members))


def _tell_sizes(checkpoint: Path) -> None:
    """Have the manifest name what is there."""
    path = checkpoint / MANIFEST
    manifest = Manifest.from_json(path.read_bytes())
    files = tuple(
        replace(file, size=(checkpoint / file.name).stat().st_size)
        for file in manifest.files
        if (checkpoint / file.name).exists()
    )
    path.write_text(replace(manifest, files=files).to_json())


def _fill(checkpoint: Path, state: str, make: Callable[[dict[str, bytes]], bytes]) -> None:
    """Write one state of every parameter anew; ``make`` gets all states that are stored of it."""
    for path in checkpoint.glob(f"*{TENSORS}"):
        content = bytearray(path.read_bytes())
        length = 8 + int.from_bytes(content[:8], "little")
        spans = _spans(TensorLayout.of(bytes(content[:length])), len(content))
        for parameter in {key.partition("|")[0] for key in spans}:
            tensors = {
                key.partition("|")[2]: bytes(content[begin:end])
                for key, (begin, end) in spans.items()
                if key.partition("|")[0] == parameter
            }
            begin, end = spans[f"{parameter}|{state}"]
            content[begin:end] = make(tensors)
        path.write_bytes(content)


def _spans(layout: TensorLayout, size: int) -> dict[str, tuple[int, int]]:
    """Where each tensor lies in its file."""
    begins = sorted(layout.offsets.items(), key=lambda entry: entry[1])
    ends = [begin for _, begin in begins[1:]] + [size]
    return {key: (begin, end) for (key, begin), end in zip(begins, ends, strict=True)}
