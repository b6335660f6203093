"""Check that a staged folder's tensors and tokenizer fit the architecture in its config.json."""

import contextlib
import sys
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from trainer.check_model.findings import ModelFindings
from trainer.check_model.tokenizer import check_tokenizer
from trainer.model.safetensors_headers import TensorHeader, UnusableModelError
from trainer.model.tensor_names import compare_tensors, find_fault

CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")


def check_architecture(
    folder: Path, config: dict[str, Any], tensors: dict[str, TensorHeader]
) -> tuple[ModelFindings, dict[str, str], bool]:
    """Return findings, the tied tensors, and whether the model is an encoder."""
    encoder = _is_encoder(config)
    classifies = encoder or _architecture_name(config).endswith(CLASSIFIERS)
    kind = AutoModelForSequenceClassification if classifies else AutoModelForCausalLM
    try:
        with contextlib.redirect_stdout(sys.stderr):
            keys = compare_tensors(kind, folder, tensors)
    except UnusableModelError as error:
        return ModelFindings([str(error)]), {}, encoder
    why = find_fault(keys, new_head=classifies)
    found = ModelFindings([why]) if why else check_tokenizer(folder, is_encoder=encoder)
    if classifies and not encoder:
        found += ModelFindings(
            warnings=[
                f"the model is a {_architecture_name(config)}: jobs can only classify or rate "
                "with it."
            ]
        )
    if keys.unexpected and not found.faults:
        found += ModelFindings(
            warnings=[f"tensors of other tasks are dropped: {keys.unexpected_text}."]
        )
    return found, keys.tied, encoder


def _is_encoder(config: dict[str, Any]) -> bool:
    """Return whether the model is a masked language model, not a decoder."""
    is_masked = config["model_type"] in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return is_masked and not config.get("is_decoder", False)


def _architecture_name(config: dict[str, Any]) -> str:
    named = config.get("architectures") or [""]
    return str(named[0]) if isinstance(named, list) else str(named)
