"""Names of files with tokenized data: a hash of everything that the tokens depend on.

Imports nothing large: the supervisor uses it too.
"""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

from trainer.contract import InputFile, RunSpec

FORMAT = "rekindle-tokens-1"
WEIGHTS = ".safetensors"
RECORD = ".json"  # a SavedFile: the file of the same name is whole and to be shared
CODE = (
    "rendering/answers.py",
    "rendering/chat.py",
    "rendering/templates/conversation.py",
    "rendering/rows.py",
    "rendering/templates/chat_template.py",
    "rendering/tokenizer.py",
    "rendering/tokens.py",
    "rendering/templates/tool_calls.py",
    "trainer/data/rows.py",
    "trainer/data/tokens.py",
    "trainer/data/tokenizing.py",
)
PACKAGES = ("tokenizers", "jinja2")


def tokens_name(spec: RunSpec, data: InputFile) -> str:
    """Return the name of the file with this data file's tokens."""
    vocabulary = [f for f in spec.base_model.files if not f.name.endswith(WEIGHTS)]
    inputs = [(f.name, f.size, f.sha256 or f.path) for f in (data, *vocabulary)]
    root = Path(__file__).parents[2]
    code = [(root / name).read_text() for name in CODE]
    versions = [version(package) for package in PACKAGES]
    settings = [data.path, spec.max_seq_len, spec.date, spec.sequences_per_row, spec.labels]
    settings += [spec.split_answers]
    fingerprint = json.dumps([FORMAT, code, versions, sorted(inputs), settings])
    return f"tokens-{hashlib.sha256(fingerprint.encode()).hexdigest()[:32]}{WEIGHTS}"


def data_files(spec: RunSpec) -> list[InputFile]:
    """Return the files that are tokenized."""
    return [spec.training_file, *([spec.validation_file] if spec.validation_file else [])]
