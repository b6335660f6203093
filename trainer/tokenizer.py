"""The base model's tokenizer, from its staged files; nothing here needs torch."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from trainer.contract import BaseModel
from trainer.rundir import RunDir


def base_folder(rundir: RunDir, base: BaseModel) -> Path:
    """The folder where the files of the base model lie, or ValueError."""
    folders = {rundir.input(file.path).parent for file in base.files}
    if len(folders) != 1:
        raise ValueError(f"the files of {base.name} must lie in one folder, not {len(folders)}")
    return folders.pop()


def load_tokenizer(folder: Path) -> Any:  # noqa: ANN401 - transformers is untyped here
    """The base model's tokenizer; it must be a fast one and know a chat template."""
    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    if not tokenizer.is_fast or tokenizer.chat_template is None:
        raise ValueError("the base model needs a tokenizer.json and a chat template")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
