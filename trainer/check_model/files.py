"""Check which files a base model's folder holds, and that its weights are one model.

Standard library only, like the headers that it reads.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.model.safetensors_headers import (
    INDEX,
    SINGLE,
    TensorHeader,
    first_names,
    read_header,
    read_index,
)


@dataclass(frozen=True)
class ModelFindings:
    """Sentences for the person who stages the model; each names a file or tensor and a remedy."""

    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __add__(self, other: "ModelFindings") -> "ModelFindings":
        return ModelFindings(self.faults + other.faults, self.warnings + other.warnings)


TRAINING_STATE = re.compile(
    r"(optimizer|optim|scheduler|scaler|rng_state|random_states|training_args)([._-].*)?"
    r"\.(pt|pth|bin|pkl|safetensors)|.*_(optim|model)_states\.pt|global_step\d*"
    r"|pytorch_model_fsdp.*|optimizer_\d+"
)
PICKLE = re.compile(r".*\.(bin|ckpt|pickle|pkl|pt|pth)")
OTHER_FORMATS = {
    re.compile(r"adapter_(config\.json|model.*)"): (
        "belongs to a PEFT adapter, which staging cannot merge. Merge it into its base "
        "(`merge_and_unload`), save that model and stage it, or remove the adapter_* files"
    ),
    re.compile(r"consolidated.*"): (
        "is a copy of the weights in Mistral's own format, which transformers does not load. "
        "Remove the consolidated* files and stage the folder again"
    ),
    re.compile(r".*\.(gguf|ggml)"): (
        "is a GGUF file, a quantized format that cannot be trained. Remove it, and stage the "
        "original model as safetensors"
    ),
    TRAINING_STATE: (
        "is training state, no part of a model. Remove it, or save the model alone with "
        "save_pretrained and stage that folder"
    ),
    PICKLE: (
        "is a pickle, which runs code when it is loaded. Save the model as safetensors, remove it"
    ),
}
FLOATS = {"BF16", "F16", "F32", "F64"}
BUFFERS = re.compile(r".*(position_ids|token_type_ids|attn\.bias|masked_bias|inv_freq)")


def check_names(folder: Path) -> ModelFindings:
    """Refuse files of another format, training state, and weights that nothing would load."""
    names = sorted(path.name for path in folder.iterdir())
    faults = []
    for pattern, why in OTHER_FORMATS.items():
        matches = [name for name in names if pattern.fullmatch(name)]
        names = [name for name in names if name not in matches]
        if matches:
            faults.append(f"{first_names(matches)} {why}.")
    warnings = []
    if "trainer_state.json" in names:
        warnings.append("trainer_state.json is a training log; it is staged but never read.")
    return ModelFindings(faults, warnings)


def check_layout(folder: Path, tensors: dict[str, TensorHeader]) -> ModelFindings:
    """Compare the files that hold weights with those that the index names."""
    files = {path.name for path in folder.glob("*.safetensors")}
    if not (folder / INDEX).is_file():
        return ModelFindings([*_unloaded(folder, files - {SINGLE}, tensors)])
    index = read_index(folder)
    shards = set(index.values())
    if SINGLE in files and shards != {SINGLE}:
        return ModelFindings(
            [
                f"the folder holds both {SINGLE} and an index of other files, two sets of weights. "
                "Remove the set that is not the model's, and stage the folder again."
            ]
        )
    headers = {shard: read_header(folder / shard) for shard in sorted(shards)}
    return ModelFindings(
        [
            *_unloaded(folder, files - shards, tensors),
            *_misplaced(index, headers),
            *_doubled(headers),
        ],
        [*_unlisted(index, headers)],
    )


def _unloaded(folder: Path, files: set[str], tensors: dict[str, TensorHeader]) -> Iterator[str]:
    for file in sorted(files):
        extra = sorted(read_header(folder / file).keys() - tensors)
        holds = f", with other tensors ({first_names(extra)})" if extra else ""
        yield (
            f"{file} is not among the weights that transformers loads ({SINGLE} or the files of "
            f"{INDEX}){holds}. Remove it, or copy the index that names it."
        )


def _misplaced(index: dict[str, str], headers: dict[str, dict[str, TensorHeader]]) -> Iterator[str]:
    for shard, tensors in headers.items():
        missing = sorted(n for n, file in index.items() if file == shard and n not in tensors)
        if missing:
            yield (
                f"{INDEX} places {first_names(missing)} in {shard}, which lacks "
                f"{'them' if missing[1:] else 'it'}. Copy index and shards from the same save of "
                "the model, and stage the folder again."
            )


def _doubled(headers: dict[str, dict[str, TensorHeader]]) -> Iterator[str]:
    count = Counter(name for tensors in headers.values() for name in tensors)
    if duplicates := sorted(name for name, times in count.items() if times > 1):
        files = [shard for shard, tensors in headers.items() if duplicates[0] in tensors]
        yield (
            f"several shards hold {first_names(duplicates)} ({', '.join(files)}), so which values "
            "count is unclear. Copy index and shards from the same save of the model."
        )


def _unlisted(index: dict[str, str], headers: dict[str, dict[str, TensorHeader]]) -> Iterator[str]:
    listed = sorted(n for tensors in headers.values() for n in tensors if n not in index)
    if listed:
        yield f"{INDEX} does not list {first_names(listed)}; transformers loads them all the same."


def check_types(config: dict[str, Any], tensors: dict[str, TensorHeader]) -> ModelFindings:
    """Refuse quantized weights: the trainer changes weights, so they must be real numbers."""
    quantized = [
        name
        for name in ("quantization_config", "compression_config", "quantization")
        if config.get(name)
    ]
    if quantized:
        settings = config[quantized[0]]
        method = settings.get("quant_method", "") if isinstance(settings, dict) else ""
        return ModelFindings(
            [
                f"config.json has a {quantized[0]}{f' ({method})' if method else ''}: the weights "
                "are quantized and cannot be trained. Stage the original model; QLoRA quantizes it "
                "on the node."
            ]
        )
    untrainable = sorted(
        n for n, t in tensors.items() if t.dtype not in FLOATS and not BUFFERS.fullmatch(n)
    )
    if untrainable:
        return ModelFindings(
            [
                f"{first_names(untrainable)} {'are' if untrainable[1:] else 'is'} of type "
                f"{tensors[untrainable[0]].dtype}, which cannot be trained. Stage the "
                "original model in BF16, F16 or F32."
            ]
        )
    float64 = sorted(name for name, tensor in tensors.items() if tensor.dtype == "F64")
    if float64:
        return ModelFindings(
            warnings=[
                f"{first_names(float64)} {'are' if float64[1:] else 'is'} of type F64, twice the "
                "size needed; the trainer rounds weights to the precision of the run."
            ]
        )
    return ModelFindings()
