"""Check that a staged folder's tensors and tokenizer fit the architecture in its config.json."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from rendering.tokenizer import NAMES, Tokenizer, UnusableTokenizer, read_tokenizer
from trainer.check_model.files import ModelFindings
from trainer.model.safetensors_headers import TensorHeader, UnusableModelError, first_names
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
    findings = ModelFindings([why]) if why else check_tokenizer(folder, is_encoder=encoder)
    if classifies and not encoder:
        findings += ModelFindings(
            warnings=[
                f"the model is a {_architecture_name(config)}: jobs can only classify or rate "
                "with it."
            ]
        )
    if keys.unexpected and not findings.faults:
        findings += ModelFindings(
            warnings=[f"tensors of other tasks are dropped: {keys.unexpected_text}."]
        )
    return findings, keys.tied, encoder


def _is_encoder(config: dict[str, Any]) -> bool:
    """Return whether the model is a masked language model, not a decoder."""
    is_masked = config["model_type"] in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return is_masked and not config.get("is_decoder", False)


def _architecture_name(config: dict[str, Any]) -> str:
    named = config.get("architectures") or [""]
    return str(named[0]) if isinstance(named, list) else str(named)


PROBES = (
    "Hello world",
    " leading and trailing ",
    "two  spaces,   three\ttabs\t\tand\n\nlines\r\n",
    "don't DON'T I'll we've",
    "1234567890 3.14 1,000,000 0x1F",
    "na\u00efve caf\u00e9 cafe\u0301 \u00fcber \u0130stanbul",
    "\u4f60\u597d\uff0c\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4",
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7",
    'def f(x):\n    return {"a": [x ** 2]}  # code',
    "<b>tags</b> \u00a0\u200b\ufeff \u2581 \u0120",
)
MOST_TOKENS = 256  # added tokens that are tried
LONGEST = 100_000  # tokens; no probe is cut
DECIDING = ("bos_token", "eos_token")  # templates write the one, answers end with the other
AGREE = (
    "Set tokenizer_class to TokenizersBackend in tokenizer_config.json; where that is not enough, "
    "write tokenizer.json anew with `AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)`."
)


def check_tokenizer(folder: Path, *, is_encoder: bool) -> ModelFindings:
    """Compare the ids and special tokens of the two tokenizers that read the model's text.

    Training reads tokenizer.json by itself, other programs read it through transformers. If the two
    differ, a model would be trained on other tokens than it sees later. Encoders read every text
    with special tokens around it.
    """
    try:
        tokenizer = read_tokenizer(folder)
    except UnusableTokenizer as error:
        return ModelFindings([str(error)])
    try:
        hf_tokenizer: Any = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # noqa: BLE001 - the tokenizers library raises Exception itself
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return ModelFindings(
            [
                f"transformers cannot load the tokenizer ({lines[0].rstrip('.')}). Copy the "
                "model's own tokenizer files."
            ]
        )
    warnings = [*_other_ids(tokenizer, hf_tokenizer), *_other_specials(tokenizer, hf_tokenizer)]
    return ModelFindings(
        warnings=[*warnings, *(_other_frame(tokenizer, hf_tokenizer) if is_encoder else ())]
    )


def _other_ids(tokenizer: Tokenizer, hf_tokenizer: Any) -> Iterator[str]:  # noqa: ANN401
    different = [
        text
        for text in _probes(tokenizer, hf_tokenizer)
        if tokenizer.encode(text).ids != _ids(hf_tokenizer, text)
    ]
    if different:
        text = min(different, key=len)
        yield (
            f"tokenizer.json reads {first_names([repr(text) for text in different])} as other "
            f"tokens than transformers does with {type(hf_tokenizer).__name__} "
            f"({_short(tokenizer.encode(text).ids)}, not "
            f"{_short(_ids(hf_tokenizer, text))}, for {text!r}). {AGREE}"
        )


def _probes(tokenizer: Tokenizer, hf_tokenizer: Any) -> Iterator[str]:  # noqa: ANN401
    yield from PROBES
    added_tokens = {
        token.content: n for n, token in tokenizer.backend.get_added_tokens_decoder().items()
    }
    added = added_tokens | dict(hf_tokenizer.get_added_vocab())
    for token in sorted(added, key=added.__getitem__)[:MOST_TOKENS]:
        yield f"a {token} b{token}\nc"


def _other_specials(tokenizer: Tokenizer, hf_tokenizer: Any) -> Iterator[str]:  # noqa: ANN401
    for name in (f"{name}_token" for name in NAMES):
        token, hf_token = tokenizer.special_tokens.get(name), getattr(hf_tokenizer, name, None)
        if token == (None if hf_token is None else str(hf_token)):
            continue
        text = (
            f"{name} is {token!r} in the files of the tokenizer, but {hf_token!r} in transformers"
        )
        if token is not None or name in DECIDING:
            yield f"{text}; jobs use the first. Name it in tokenizer_config.json."


def _other_frame(tokenizer: Tokenizer, hf_tokenizer: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield a warning if special tokens around a text to classify differ."""
    text = PROBES[0]
    ids, hf_ids = tokenizer.encode_plain(text, LONGEST), list(hf_tokenizer(text).input_ids)
    if ids != hf_ids and tokenizer.encode(text).ids == _ids(hf_tokenizer, text):
        yield (
            f"a text to classify is read as {_short(ids)}, by transformers as {_short(hf_ids)}: "
            f"other special tokens around it. {AGREE}"
        )


def _ids(hf_tokenizer: Any, text: str) -> list[int]:  # noqa: ANN401
    return list(hf_tokenizer(text, add_special_tokens=False).input_ids)


def _short(ids: list[int]) -> str:
    return first_names([str(number) for number in ids], most=8)
