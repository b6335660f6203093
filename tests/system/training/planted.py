"""Planted faults: exported files that are not the model that was trained.

Each changes a copy of an exported folder. A fault of the trainer itself is one textual change to a
copy of its source, which then trains and exports.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.system.exactness.worlds import DEADLINE, ROOT
from trainer.rundir import RunDir
from trainer.verify.checks import ExpectedExport
from trainer.verify.files import INDEX
from trainer.verify.result import Verification

WEIGHTS = "model.safetensors"
Tensors = dict[str, torch.Tensor]


def verify_folder(rundir: RunDir, folder: Path, **changes: Any) -> Verification:  # noqa: ANN401
    """Verify ``folder`` in a new process with the request that the trainer of ``rundir`` made."""
    request = rundir.verification / "expected.json"
    expected = ExpectedExport.from_json(request.read_bytes())
    expected = replace(expected, model=str(folder), **changes)
    planted, result = folder.parent / "expected.json", folder.parent / "result.json"
    planted.write_text(expected.to_json())
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "trainer.verify", rundir.root, planted, result]
    with subprocess.Popen(list(map(str, command)), cwd=ROOT, stdin=subprocess.PIPE) as process:
        assert process.wait(DEADLINE) == 0
    return Verification.from_json(result.read_bytes())


def edit_weights(folder: Path, change: Callable[[Tensors], None]) -> None:
    """Change the tensors of an exported folder in place."""
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def transpose_square(tensors: Tensors) -> None:
    """Transpose one square tensor: all names and shapes stay as they were."""
    name = next(n for n, t in tensors.items() if n.endswith("q_proj.weight"))
    assert tensors[name].shape[0] == tensors[name].shape[1]
    tensors[name] = tensors[name].T.contiguous()


def swap_layers(tensors: Tensors) -> None:
    """Swap one matrix of two layers."""
    first, second = (f"model.layers.{n}.mlp.down_proj.weight" for n in (0, 1))
    tensors[first], tensors[second] = tensors[second], tensors[first]


def swap_embeddings(tensors: Tensors) -> None:
    """Swap two rows of the embedding: those of two frequent tokens."""
    rows = tensors["model.embed_tokens.weight"]
    rows[[3, 4]] = rows[[4, 3]].clone()


def drop_tensor(tensors: Tensors) -> None:
    """Leave out one tensor; transformers would take a new one and warn."""
    del tensors["model.layers.1.self_attn.q_proj.weight"]


def rename_tensor(tensors: Tensors) -> None:
    """Give a tensor a name that no module has."""
    tensors["model.layers.1.q.weight"] = tensors.pop("model.layers.1.self_attn.q_proj.weight")


def spoil_one(tensors: Tensors) -> None:
    """Have one number be none."""
    tensors["model.norm.weight"][0] = torch.nan


def widen(tensors: Tensors) -> None:
    """Save all in another dtype."""
    tensors |= {name: tensor.float() for name, tensor in tensors.items()}


def narrow(tensors: Tensors) -> None:
    """Save all in the other 16 bits."""
    tensors |= {name: tensor.half() for name, tensor in tensors.items()}


def shard(folder: Path, drop: bool = False) -> None:
    """Save the weights as two shards with an index; with ``drop`` one of them is lost."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for number, shard_names in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({n: tensors[n] for n in shard_names}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard_names, file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    if drop:
        (folder / "model-00002-of-00002.safetensors").unlink()


def edit_json(path: Path, change: Callable[[Any], None]) -> None:
    """Change a JSON file in place."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def swap_tokens(tokenizer: Any) -> None:  # noqa: ANN401
    """Swap the ids of two tokens that no verified row need hold."""
    vocabulary = tokenizer["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.__getitem__)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]


def drop_merge(tokenizer: Any) -> None:  # noqa: ANN401
    """Leave out the last merge: the vocabulary stays as it was."""
    tokenizer["model"]["merges"].pop()


@dataclass(frozen=True, kw_only=True)
class Change:
    """A fault in the trainer's source."""

    file: str
    was: str
    becomes: str


def copy_trainer(folder: Path, *changes: Change) -> Path:
    """Copy the trainer's source with these faults and return the folder to run it in."""
    for package in ("rendering", "trainer"):
        ignored = shutil.ignore_patterns("__*__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    for change in changes:
        path = folder / change.file
        text = path.read_text()
        assert text.count(change.was) == 1, f"{change.file} has moved on: plant the fault anew"
        path.write_text(text.replace(change.was, change.becomes))
    return folder
