"""Copy the files that accompany a model's weights: the tokenizer, and the rest of the base.

The base's model card is kept under another name: it does not describe this model.
"""

import json
import shutil
from pathlib import Path

from trainer.contract import RunSpec
from trainer.model.sequence_head import has_head
from trainer.model.tokenizer import load_tokenizer

CARD, BASE_CARD = "README.md", "BASE_README.md"
ADAPTER = "adapter"  # the folder of the adapters alone, within the model's


def copy_companions(base: Path, folder: Path, spec: RunSpec) -> None:
    """Copy all files of the base model except weights and configuration.

    The tokenizer of a model with a head must pad as in training: the score depends on it.
    """
    for file in sorted(base.iterdir()):  # so that README.md replaces an older BASE_README.md
        weights = file.name.endswith((".safetensors", ".safetensors.index.json"))
        if file.is_file() and not weights and file.name != "config.json":
            name = BASE_CARD if file.name == CARD else file.name
            shutil.copyfile(file, folder / name)
    if has_head(spec):
        set_pad_token(folder, load_tokenizer(base, spec.method).pad_token)


def set_pad_token(folder: Path, token: str) -> None:
    """Set the pad token of the tokenizer in this folder."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(config | {"pad_token": token}, indent=2) + "\n")
