"""The base model's tokenizer for a training method; needs no torch."""

from pathlib import Path

from rendering.tokenizer import Tokenizer, UnusableTokenizer, read_tokenizer
from trainer.contract import PinnedModel
from trainer.process.non_retryable import NonRetryableError
from trainer.rundir import RunDir


def base_folder(rundir: RunDir, base: PinnedModel) -> Path:
    """Return the folder of the base model's files, or raise ValueError."""
    if base.checkpoint is not None:
        return rundir.converted_base
    folders = {rundir.input(file.path).parent for file in base.files}
    if len(folders) != 1:
        raise ValueError(f"the files of {base.name} must lie in one folder, not {len(folders)}")
    return folders.pop()


def load_tokenizer(folder: Path, method: str = "supervised") -> Tokenizer:
    """Load the base model's tokenizer with padding; raise NonRetryableError if unusable.

    Texts can be classified without a chat template.
    """
    try:
        return _load_with_template(folder, method)
    except UnusableTokenizer as error:
        raise NonRetryableError(str(error)) from error


def _load_with_template(folder: Path, method: str) -> Tokenizer:
    tokenizer = read_tokenizer(folder, method)
    if method != "classification":
        tokenizer.template(None)
    return tokenizer
