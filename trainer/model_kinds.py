"""Which model a staged folder is meant to be, and whether its tensors and tokenizer make it up."""

import contextlib
import sys
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from trainer.findings import Findings
from trainer.model_keys import compare, fault
from trainer.weights import Tensor, UnusableModel

CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")


def check_architecture(
    folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[Findings, dict[str, str], bool]:
    """Return what is wrong, which tensors are tied, and whether the model is an encoder."""
    encoder = _is_encoder(config)
    classifies = encoder or _named(config).endswith(CLASSIFIERS)
    kind = AutoModelForSequenceClassification if classifies else AutoModelForCausalLM
    try:
        with contextlib.redirect_stdout(sys.stderr):
            keys = compare(kind, folder, tensors)
    except UnusableModel as error:
        return Findings([str(error)]), {}, encoder
    why = fault(keys, new_head=classifies)
    found = Findings([why] if why else [*_tokenizer_faults(folder)])
    if classifies and not encoder:
        found += Findings(
            warnings=[f"the model is a {_named(config)}: jobs can only classify or rate with it."]
        )
    if keys.unexpected and not found.faults:
        found += Findings(warnings=[f"tensors of other tasks are dropped: {keys.unexpected_text}."])
    return found, keys.tied, encoder


def _tokenizer_faults(folder: Path) -> list[str]:
    """The reason why the tokenizer cannot be loaded, as a node would."""
    try:
        AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - the tokenizers library raises Exception itself
        why = UnusableModel.because(
            error, "the tokenizer cannot be loaded", "Copy the model's own tokenizer files."
        )
        return [str(why)]
    return []


def _is_encoder(config: dict[str, Any]) -> bool:
    """Whether the model reads in both directions and writes nothing."""
    is_masked = config["model_type"] in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return is_masked and not config.get("is_decoder", False)


def _named(config: dict[str, Any]) -> str:
    named = config.get("architectures") or [""]
    return str(named[0]) if isinstance(named, list) else str(named)
