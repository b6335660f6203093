"""`python -m trainer.check_model DIR` says whether DIR is a base model that can be trained.

Prints JSON with two lists of sentences: `faults`, for which the model is refused, and `warnings`.
Reads headers only. Names and shapes are compared as transformers does it; where torch or
transformers is not installed, a warning says so and all else is checked.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainer.check_model.files import ModelFindings, check_layout, check_names, check_types
from trainer.check_model.token_rows import check_tokens
from trainer.model.safetensors_headers import (
    TensorHeader,
    UnusableModelError,
    read_json,
    read_weights,
)

PROBES, PROBE_BYTES = 16, 64 * 1024  # how much of two tied tensors is compared
OBJECTS = (  # files that must hold a JSON object; other programs' files may hold what they like
    *("config.json", "generation_config.json", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
)
TEMPLATES = ("chat_template.jinja", "chat_template.json")


def check_model(folder: Path) -> ModelFindings:
    """Check everything that can be known before a machine is paid for."""
    if not folder.is_dir():
        return ModelFindings(
            [f"there is no folder {folder}. Name the folder of a transformers model."]
        )
    if not (folder / "config.json").is_file():
        return ModelFindings(
            [f"{folder} has no config.json. Name the folder of a transformers model."]
        )
    findings = check_names(folder)
    try:
        for path in (folder / name for name in OBJECTS):
            if path.is_file():
                read_json(path)
        config = read_json(folder / "config.json")
        findings += _check_config(config)
        tensors = read_weights(folder)
        findings += check_layout(folder, tensors) + check_types(config, tensors)
        findings += check_tokens(folder, config, tensors)
    except UnusableModelError as error:
        return findings + ModelFindings([str(error)])
    return findings if findings.faults else findings + _check_architecture(folder, config, tensors)


def _check_config(config: dict[str, Any]) -> ModelFindings:
    if not isinstance(config.get("model_type"), str):
        return ModelFindings(
            ["config.json has no model_type. Name a folder that save_pretrained has written."]
        )
    if weights := config.get("transformers_weights"):
        return ModelFindings(
            [
                f"config.json has transformers_weights {weights!r} in place of model.safetensors. "
                "Remove that member, and save the weights as model.safetensors."
            ]
        )
    return ModelFindings()


def _check_architecture(
    folder: Path, config: dict[str, Any], tensors: dict[str, TensorHeader]
) -> ModelFindings:
    """Check names, shapes and tokenizer with torch and transformers."""
    try:
        from trainer.check_model import architecture  # noqa: PLC0415 - needs torch
    except ModuleNotFoundError as error:
        return ModelFindings(
            warnings=[
                f"names and shapes of tensors were not checked, as {error.name} is not installed. "
                "`pip install rekindle[trainer]` and stage again, or the first job finds out."
            ]
        )
    findings, tied, is_encoder = architecture.check_architecture(folder, config, tensors)
    findings += _check_tied(folder, tensors, tied)
    if not is_encoder and not _has_template(folder):
        findings += ModelFindings(
            warnings=["the folder has no chat template: jobs can only classify texts with it."]
        )
    return findings


def _check_tied(
    folder: Path, tensors: dict[str, TensorHeader], tied: dict[str, str]
) -> ModelFindings:
    """Refuse tensors that config.json ties and that differ: programs disagree which one counts."""
    for name, source in tied.items():
        tensor, source_tensor = tensors.get(name), _by_suffix(tensors, source)
        if tensor and source_tensor and not _look_equal(folder, tensor, source_tensor):
            return ModelFindings(
                [
                    f"config.json ties {name} to {source}, but the folder holds other values for "
                    "each. Set tie_word_embeddings to false, or remove the tensor that is not used."
                ]
            )
    return ModelFindings()


def _by_suffix(tensors: dict[str, TensorHeader], name: str) -> TensorHeader | None:
    """Return the tensor of this name, or of the name without the base model's prefix."""
    return tensors.get(name) or tensors.get(name.partition(".")[2])


def _look_equal(folder: Path, tied: TensorHeader, source: TensorHeader) -> bool:
    """Compare type, shape and samples of the content."""
    if (tied.dtype, tied.shape) != (source.dtype, source.shape):
        return False
    with (folder / tied.file).open("rb") as first, (folder / source.file).open("rb") as second:
        for number in range(PROBES):
            at = tied.size * number // PROBES
            length = min(PROBE_BYTES, tied.size - at)
            first.seek(tied.begin + at)
            second.seek(source.begin + at)
            if first.read(length) != second.read(length):
                return False
    return True


def _has_template(folder: Path) -> bool:
    settings = folder / "tokenizer_config.json"
    named = settings.is_file() and read_json(settings).get("chat_template")
    return bool(named) or any((folder / name).is_file() for name in TEMPLATES)


def main() -> None:
    """Read the argument, check and print."""
    parser = argparse.ArgumentParser(prog="python -m trainer.check_model", description=__doc__)
    parser.add_argument("folder", type=Path)
    json.dump(asdict(check_model(parser.parse_args().folder)), sys.stdout)
