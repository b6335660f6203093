"""Convert to a Hugging Face folder: the model at this step, for `from_pretrained`.

`trainer/export/hf_folder.py` writes the model at the end of a run, from the engine, on all ranks.
This module writes it from the files of any checkpoint, in one process. The weights are the same
bytes.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from trainer.contract import RunSpec
from trainer.convert.adapters import (
    merge_adapter,
    trainable_names,
    trained_head_name,
    write_adapter,
)
from trainer.convert.shards import LIMIT, write_model
from trainer.convert.whole import FullParameters
from trainer.export.companion_files import ADAPTER, copy_companions
from trainer.model import sequence_head
from trainer.model.precision import dtype_of
from trainer.model.sequence_head import has_head
from trainer.model.tokenizer import load_tokenizer


def write_hf(
    parameters: FullParameters, spec: RunSpec, base: Path, target: Path, limit: int = LIMIT
) -> None:
    """Write weights, configuration, tokenizer and, with LoRA, the adapters."""
    _require_base(base, spec)
    dtype = dtype_of(spec)
    config = AutoConfig.from_pretrained(base, local_files_only=True, trust_remote_code=False)
    kind: Any = AutoModelForCausalLM
    if has_head(spec):
        kind = AutoModelForSequenceClassification
        pad_token_id = load_tokenizer(base, spec.method).pad_token_id
        config.update(sequence_head.head_settings(spec, pad_token_id))
    model = _Model(parameters, spec, dtype, _Base(base))
    shapes = _parameters(kind, config)
    model.require(shapes)
    write_model(target, shapes, dtype, model.read, limit)
    config.dtype = dtype
    config.save_pretrained(target)
    copy_companions(base, target, spec)
    if spec.lora is not None:
        write_adapter(parameters, spec, spec.lora, dtype, target / ADAPTER)


class _Base:
    """The weights of the base model, by the names in its files."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            file: Any = safe_open(path, "pt")
            self._files |= dict.fromkeys(file.keys(), file)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        return tensor


class _Model:
    """The source of each weight of the model: the checkpoint, the base, or both."""

    def __init__(
        self, parameters: FullParameters, spec: RunSpec, dtype: torch.dtype, base: _Base
    ) -> None:
        self._trained = parameters
        self._lora = spec.lora
        self._dtype = dtype
        self._base = base
        self._frozen = spec.freezes  # else what the checkpoint lacks is lost, not the base's

    def require(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Raise ValueError unless each weight has a source and each trained weight a place."""
        missing = [name for name in shapes if not self._has(name)]
        if missing:
            raise ValueError(
                f"no file holds {missing[0]}: the model's class names its weights differently from "
                "its files. Let the job finish; its own export knows the names"
            )
        trainable = set(shapes) if self._lora is None else set(trainable_names(shapes))
        if unplaced := sorted(set(self._trained.shapes) - trainable):
            raise ValueError(f"{unplaced[0]} was trained, but the base model has no place for it")

    def read(self, name: str) -> torch.Tensor:
        """Return one weight in the precision of the run."""
        if self._lora is None:
            is_trained = name in self._trained.shapes
            weight = self._trained.tensor(name, "master") if is_trained else self._base.read(name)
            return weight.to(self._dtype)
        if (head_name := trained_head_name(name)) in self._trained.shapes:
            return self._trained.tensor(head_name, "master").to(self._dtype)
        weight = self._base.read(name).to(self._dtype)
        return merge_adapter(self._trained, name, weight, self._lora)

    def _has(self, name: str) -> bool:
        if self._lora is None:
            return name in self._trained.shapes or (self._frozen and name in self._base)
        return name in self._base or trained_head_name(name) in self._trained.shapes


def _parameters(kind: Any, config: Any) -> dict[str, tuple[int, ...]]:  # noqa: ANN401
    """Return names and shapes of the model's parameters, shared ones once; uses no memory."""
    with torch.device("meta"):
        model = kind.from_config(config, trust_remote_code=False)
    return {name: tuple(p.shape) for name, p in model.named_parameters()}


def _require_base(base: Path, spec: RunSpec) -> None:
    if spec.base_model.checkpoint is not None:
        return  # converted from another base; the checksums in CONVERTED_BASE verify it
    for file in spec.base_model.files:
        path = base / file.name
        if not path.is_file():
            raise ValueError(f"{path} is missing: --base must be {spec.base_model.name}'s folder")
        with path.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        if file.sha256 and digest != file.sha256:
            raise ValueError(f"{path} is not the file that the job was trained from")
