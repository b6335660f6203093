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
    ours: TokenizerFacts, theirs: TokenizerFacts, pad_token: str | None
) -> Iterator[str]:
    """Yield how the exported tokenizer (``theirs``) differs from the trainer's.

    ``pad_token``: the required pad token of the exported tokenizer; None: any.
    """
    moved = sorted(
        token
        for token in ours.vocabulary.keys() | theirs.vocabulary.keys()
        if ours.vocabulary.get(token) != theirs.vocabulary.get(token)
    )
    if moved:
        yield (
            f"{len(moved)} tokens have another id: {moved[0]!r} has "
            f"{theirs.vocabulary.get(moved[0])}, in training it had {ours.vocabulary.get(moved[0])}"
        )
    if ours.added != theirs.added:
        yield "its added tokens differ"
    if ours.template != theirs.template:
        yield "its chat template differs"
    expected = ours.special | ({"pad_token": pad_token} if pad_token else {})
    for name in sorted(expected.keys() | theirs.special.keys()):
        if expected.get(name) != theirs.special.get(name):
            other, mine = theirs.special.get(name), expected.get(name)
            yield f"its {name} is {other!r}, in training it was {mine!r}"
    if not moved and ours.program != theirs.program:
        yield "its merges, normalizer or pre-tokenizer differ"


def _program(tokenizer: Any) -> str:  # noqa: ANN401
    whole = json.loads(tokenizer.backend_tokenizer.to_str())
    kept = {name: value for name, value in whole.items() if name not in AT_RUN_TIME}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
