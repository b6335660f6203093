"""The base model's tokenizer, from its staged files; nothing here needs torch."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from trainer import heads
from trainer.contract import BaseModel
from trainer.hopeless import Hopeless
from trainer.rundir import RunDir

SPARE = ("pad", "reserved", "unused", "control", "unk")  # words in names of tokens, best first


def base_folder(rundir: RunDir, base: BaseModel) -> Path:
    """The folder where the files of the base model lie, or Hopeless."""
    folders = {rundir.input(file.path).parent for file in base.files}
    if len(folders) != 1:
        raise Hopeless(f"the files of {base.name} must lie in one folder, not {len(folders)}")
    return folders.pop()


def load_tokenizer(folder: Path, method: str = "supervised") -> Any:  # noqa: ANN401 - untyped here
    """The base model's tokenizer; it must be a fast one and know a chat template.

    It can pad. For a model with a head it pads with a token that no answer ends with: a score is
    read at the last token that is no padding, and would not see the end of the answer. Texts can be
    classified without a chat template.
    """
    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    needs_template = method != "classification"
    if not tokenizer.is_fast or (needs_template and tokenizer.chat_template is None):
        raise Hopeless(
            "the base model needs a tokenizer.json and a chat template. Add them to its folder and "
            "stage it again."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if method in heads.METHODS and tokenizer.pad_token_id == tokenizer.eos_token_id:
        tokenizer.pad_token = _spare_token(tokenizer)
    return tokenizer


def _spare_token(tokenizer: Any) -> str:  # noqa: ANN401
    """A special token of the vocabulary that texts do not hold, by its name."""
    taken = {tokenizer.eos_token, tokenizer.bos_token}
    special = [str(t) for _, t in sorted(tokenizer.added_tokens_decoder.items()) if t.special]
    for word in SPARE:
        for token in special:
            if word in token.lower() and token not in taken:
                return token
    raise Hopeless(
        "the base model's vocabulary has no token for padding but the one that ends an answer, "
        "and none that is reserved; train a model with a head on another base"
    )
