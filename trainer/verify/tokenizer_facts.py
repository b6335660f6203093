"""Facts that identify a tokenizer: equal facts mean equal ids for every text."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from trainer.contract.wire import Message

AT_RUN_TIME = ("truncation", "padding")  # set by calls, not by the files


@dataclass(frozen=True, kw_only=True)
class TokenizerFacts(Message):
    """All that determines how texts are tokenized and chats are rendered."""

    vocabulary: dict[str, int]
    added: dict[str, str]  # token -> how it is matched
    special: dict[str, str]  # its role -> the token
    template: str
    program: str  # SHA-256 of the whole tokenizer, its merges and normalizers included


def read_facts(folder: Path) -> TokenizerFacts:
    """Return the facts of the tokenizer in ``folder``, as plain transformers loads it."""
    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    return TokenizerFacts(
        vocabulary=dict(tokenizer.get_vocab()),
        added={str(token): repr(token) for token in tokenizer.added_tokens_decoder.values()},
        special={name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        template=json.dumps(tokenizer.chat_template, sort_keys=True),
        program=_program(tokenizer),
    )


def differences(
    original: TokenizerFacts, exported: TokenizerFacts, pad_token: str | None
) -> Iterator[str]:
    """Yield how the exported tokenizer (``exported``) differs from the trainer's.

    ``pad_token``: the required pad token of the exported tokenizer; None: any.
    """
    moved = sorted(
        token
        for token in original.vocabulary.keys() | exported.vocabulary.keys()
        if original.vocabulary.get(token) != exported.vocabulary.get(token)
    )
    if moved:
        yield (
            f"{len(moved)} tokens have another id: {moved[0]!r} has "
            f"{exported.vocabulary.get(moved[0])}, in training it had "
            f"{original.vocabulary.get(moved[0])}"
        )
    if original.added != exported.added:
        yield "its added tokens differ"
    if original.template != exported.template:
        yield "its chat template differs"
    expected = original.special | ({"pad_token": pad_token} if pad_token else {})
    for name in sorted(expected.keys() | exported.special.keys()):
        if expected.get(name) != exported.special.get(name):
            actual, required = exported.special.get(name), expected.get(name)
            yield f"its {name} is {actual!r}, in training it was {required!r}"
    if not moved and original.program != exported.program:
        yield "its merges, normalizer or pre-tokenizer differ"


def _program(tokenizer: Any) -> str:  # noqa: ANN401
    document = json.loads(tokenizer.backend_tokenizer.to_str())
    members = {name: value for name, value in document.items() if name not in AT_RUN_TIME}
    return hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()
