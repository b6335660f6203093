"""What goes with a model's weights: the tokenizer, and whatever else came with the base."""

import json
import shutil
from pathlib import Path

from trainer.contract import RunSpec
from trainer.tokenizer import load_tokenizer


def copy_companions(base: Path, folder: Path, spec: RunSpec) -> None:
    """Copy all that came with the base model but weights and configuration.

    A reward model's tokenizer must pad as it was trained: its score depends on it.
    """
    for file in base.iterdir():
        weights = file.name.endswith((".safetensors", ".safetensors.index.json"))
        if file.is_file() and not weights and file.name != "config.json":
            shutil.copyfile(file, folder / file.name)
    if spec.method == "reward":
        name_padding(folder, load_tokenizer(base, spec.method).pad_token)


def name_padding(folder: Path, token: str) -> None:
    """Have the tokenizer in this folder pad with this token."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(config | {"pad_token": token}, indent=2) + "\n")
