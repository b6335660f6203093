"""The base model's tokenizer for a training method; nothing here needs torch."""

from dataclasses import replace
from pathlib import Path

from rendering.tokenizer import Tokenizer, UnusableTokenizer, load
from trainer import heads
from trainer.contract import BaseModel
from trainer.hopeless import Hopeless
from trainer.rundir import RunDir

SPARE = ("pad", "reserved", "unused", "control", "unk")  # words in names of tokens, best first


def base_folder(rundir: RunDir, base: BaseModel) -> Path:
    """The folder where the files of the base model lie, or ValueError."""
    folders = {rundir.input(file.path).parent for file in base.files}
    if len(folders) != 1:
        raise ValueError(f"the files of {base.name} must lie in one folder, not {len(folders)}")
    return folders.pop()


def load_tokenizer(folder: Path, method: str = "supervised") -> Tokenizer:
    """Load the base model's tokenizer, which can pad; raise Hopeless where it cannot be used.

    For a model with a head it pads with a token that no answer ends with: a score is read at the
    last token that is no padding, and would not see the end of the answer. Texts can be classified
    without a chat template.
    """
    try:
        return _loaded(folder, method)
    except UnusableTokenizer as error:
        raise Hopeless(str(error)) from error


def _loaded(folder: Path, method: str) -> Tokenizer:
    tokenizer = load(folder)
    if method != "classification":
        tokenizer.template(None)
    if method in heads.METHODS and tokenizer.pad_token_id == tokenizer.eos_token_id:
        tokenizer = replace(tokenizer, padding=_spare_token(tokenizer))
    return tokenizer


def _spare_token(tokenizer: Tokenizer) -> str:
    """Return a special token of the vocabulary that texts do not hold."""
    taken = {tokenizer.special_tokens.get(name) for name in ("eos_token", "bos_token")}
    added = sorted(tokenizer.backend.get_added_tokens_decoder().items())
    special = [token.content for _, token in added if token.special]
    for word in SPARE:
        for token in special:
            if word in token.lower() and token not in taken:
                return str(token)
    raise UnusableTokenizer(
        "The base model's vocabulary has no token for padding but the one that ends an answer, "
        "and none that is reserved. Train a model with a head on another base."
    )
