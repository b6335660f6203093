"""Check that every token has a row in the embedding and every special token an id.

Reads tokenizer.json as JSON: staging runs it where no tokenizer library is installed.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer.check_model.files import ModelFindings
from trainer.model.safetensors_headers import (
    TensorHeader,
    UnusableModelError,
    first_names,
    read_json,
)

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
EMBEDDING = re.compile(r"(.*\.)?(embed_tokens|wte|word_embeddings)\.weight")
SPECIAL = ("bos", "eos", "pad", "unk", "sep", "cls", "mask")
# A text model that shares the tokenizer of a multimodal one, such as Gemma 3 1B, has no rows for
# these. Text never holds them.
NOT_TEXT = re.compile(r"image|audio|video|vision", re.IGNORECASE)
RESIZE = (
    "Resize the embedding (`model.resize_token_embeddings`), or copy the model's own tokenizer."
)
LEAST_SHARE = 0.5  # of rows that have a token; less suggests the tokenizer of another model


def check_tokens(
    folder: Path, config: dict[str, Any], tensors: dict[str, TensorHeader]
) -> ModelFindings:
    """Compare the ids of the tokenizer and of both configurations with the embedding's rows."""
    if not (folder / TOKENIZER).is_file():
        return ModelFindings(
            [
                f"the folder has no {TOKENIZER}. `AutoTokenizer.from_pretrained(DIR)"
                ".save_pretrained(DIR)` writes it from the tokenizer's other files."
            ]
        )
    tokens = read_tokens(folder / TOKENIZER)
    settings = _optional(folder / SETTINGS)
    rows = embedding_rows(config, tensors)
    if rows is None:
        return ModelFindings(warnings=["no embedding is recognized; token ids were not compared."])
    token_ids = set(tokens.values())
    findings = _check_ids(tokens, rows) + _check_named(settings, tokens, rows)
    for name, source in (
        ("config.json", config),
        ("generation_config.json", _optional(folder / "generation_config.json")),
    ):
        findings += ModelFindings([*_special_faults(name, source, rows, token_ids)])
    return findings + ModelFindings(warnings=[*_ending(folder, config, settings, tokens)])


def embedding_rows(config: dict[str, Any], tensors: dict[str, TensorHeader]) -> int | None:
    """Return the rows of the token embedding, else vocab_size, else None."""
    row_counts = [t.shape[0] for n, t in tensors.items() if EMBEDDING.fullmatch(n) and any(t.shape)]
    size = config.get("vocab_size")
    return row_counts[0] if row_counts else size if isinstance(size, int) else None


def read_tokens(path: Path) -> dict[str, int]:
    """Return the id of every token in tokenizer.json, or raise UnusableModel."""
    data = read_json(path)
    try:
        vocabulary = data["model"]["vocab"]
        if isinstance(vocabulary, list):  # Unigram: [token, score] in the order of their ids
            tokens = {str(entry[0]): number for number, entry in enumerate(vocabulary)}
        else:
            tokens = {str(token): int(number) for token, number in vocabulary.items()}
        tokens |= {str(t["content"]): int(t["id"]) for t in data.get("added_tokens") or ()}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UnusableModelError(
            f"{path.name} has no vocabulary that can be read ({error!r}). Copy the whole file into "
            "the folder and stage the model again."
        ) from None
    if not tokens:
        raise UnusableModelError(
            f"{path.name} has an empty vocabulary. Copy the model's own tokenizer."
        )
    return tokens


def _check_ids(tokens: dict[str, int], rows: int) -> ModelFindings:
    beyond = sorted((n, token) for token, n in tokens.items() if not 0 <= n < rows)
    texts = [f"{token!r} ({n})" for n, token in beyond if not NOT_TEXT.search(token)]
    if texts:
        return ModelFindings(
            [
                f"{TOKENIZER} has ids beyond the {rows} rows of the embedding: "
                f"{first_names(texts)}. {RESIZE}"
            ]
        )
    if beyond:
        names = first_names([f"{token!r} ({n})" for n, token in beyond])
        return ModelFindings(
            warnings=[
                f"{names} lies beyond the {rows} rows of the embedding; texts must not hold it."
            ]
        )
    if len(set(tokens.values())) < LEAST_SHARE * rows:
        return ModelFindings(
            warnings=[
                f"{TOKENIZER} has {len(tokens)} tokens for {rows} rows of the embedding. Check "
                "that it is this model's tokenizer."
            ]
        )
    return ModelFindings()


def _check_named(settings: dict[str, Any], tokens: dict[str, int], rows: int) -> ModelFindings:
    """Find special tokens that the vocabulary lacks: transformers gives them the next free ids."""
    named = {key: _content(settings.get(f"{key}_token")) for key in SPECIAL}
    extra = settings.get("additional_special_tokens") or settings.get("extra_special_tokens") or ()
    named |= {_content(token): _content(token) for token in _listed(extra)}
    unknown = sorted({token for token in named.values() if token and token not in tokens})
    if not unknown:
        return ModelFindings()
    text = f"{SETTINGS} names {first_names([repr(t) for t in unknown])}, absent from {TOKENIZER}"
    if max(tokens.values()) + len(unknown) < rows:
        return ModelFindings(
            warnings=[f"{text}; rows of the embedding that are still free stand for it."]
        )
    return ModelFindings([f"{text}, and the embedding's {rows} rows have no room for it. {RESIZE}"])


def _special_faults(
    name: str, source: dict[str, Any], rows: int, token_ids: set[int]
) -> Iterator[str]:
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = source.get(key)
        for number in value if isinstance(value, list) else [value]:
            if number is None or (key == "pad_token_id" and number == -1):  # -1: none
                continue
            if type(number) is not int or not 0 <= number < rows:
                why = f"the embedding has {rows} rows"
            elif number not in token_ids:
                why = f"{TOKENIZER} has no such token"
            else:
                continue
            yield f"{name} has {key} {number!r}, but {why}. Set it to the model's own token."


def _ending(
    folder: Path, config: dict[str, Any], settings: dict[str, Any], tokens: dict[str, int]
) -> Iterator[str]:
    """Warn where generation would not stop at the token that ends an answer in training."""
    ids: set[Any] = set()
    for source in (config, _optional(folder / "generation_config.json")):
        value = source.get("eos_token_id")
        ids |= set(value if isinstance(value, list) else [value])
    token = _content(settings.get("eos_token"))
    if token in tokens and ids - {None} and tokens[token] not in ids:
        yield (
            f"the tokenizer ends with {token!r} ({tokens[token]}), but eos_token_id is "
            f"{sorted(n for n in ids if n is not None)}: generation may not stop there."
        )


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _content(token: Any) -> str:  # noqa: ANN401 - a string, or an object with its content
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _listed(tokens: Any) -> list[Any]:  # noqa: ANN401 - a list, or an object by role
    return list(tokens.values()) if isinstance(tokens, dict) else list(tokens)
