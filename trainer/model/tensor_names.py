"""Compare a model's tensors with those of its architecture, as transformers does.

`compare_tensors` builds the model on the meta device and has transformers load tensors without data
into it: the same renaming, tying and exceptions as on a node, in a second for any size.
"""

import copy
import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging

from trainer.model.safetensors_headers import TensorHeader, UnusableModelError, first_names
from trainer.model.sequence_head import MODULES

NEW_HEADS = list(MODULES)
OTHER_HEADS = re.compile(  # parts of other tasks: dropped without a loss
    r"(.*\.)?(lm_head|embed_out|cls|classifier|score|v_head|qa_outputs|pooler)(\..*)?"
)
UNMERGED = re.compile(r".*\.(lora_[AB]|lora_embedding_[AB]|base_layer|modules_to_save)(\..*)?")
MACHINE_FAULTS = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM)  # another machine may do


@dataclass(frozen=True, kw_only=True)
class TensorDifferences:
    """Differences between a checkpoint and an architecture, in the architecture's names."""

    missing: list[str]
    unexpected: list[str]
    mismatched: list[tuple[str, list[int], list[int]]]  # name, shape found, shape wanted
    tied: dict[str, str]  # tensor -> the tensor with the same values

    @classmethod
    def from_info(cls, info: dict[str, Any], tied: dict[str, str]) -> "TensorDifferences":
        """Read transformers' ``output_loading_info``."""
        shapes = sorted(
            (n, list(actual), list(expected)) for n, actual, expected in info["mismatched_keys"]
        )
        return cls(
            missing=sorted(info["missing_keys"]),
            unexpected=sorted(info["unexpected_keys"]),
            mismatched=shapes,
            tied=tied,
        )

    @property
    def unexpected_text(self) -> str:
        """The unexpected tensors, for a message."""
        return first_names(self.unexpected)


def compare_tensors(
    kind: Any,  # noqa: ANN401 - a class of transformers such as AutoModelForCausalLM
    folder: Path,
    tensors: dict[str, TensorHeader],
    **settings: Any,  # noqa: ANN401
) -> TensorDifferences:
    """Compare the tensors with the model that ``kind`` makes of the folder's configuration.

    ``settings`` change the configuration, or are ``config`` itself. Raises UnusableModel for a
    configuration that makes no model.
    """
    try:
        with _quiet():
            return _compare(kind, folder, tensors, settings)
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in MACHINE_FAULTS:
            raise
        raise UnusableModelError.because(
            error,
            "transformers cannot build the model of config.json",
            "Stage the config.json that belongs to these weights.",
        ) from error


def _compare(
    kind: Any,  # noqa: ANN401
    folder: Path,
    tensors: dict[str, TensorHeader],
    settings: dict[str, Any],
) -> TensorDifferences:
    config = settings.pop("config", None) or AutoConfig.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, **settings
    )
    with torch.device("meta"):
        model_class = type(kind.from_config(copy.deepcopy(config), trust_remote_code=False))
    model, info = model_class.from_pretrained(
        None,
        config=config,
        state_dict={name: _empty(tensor) for name, tensor in tensors.items()},
        device_map={"": "meta"},
        ignore_mismatched_sizes=True,  # reported by `fault` instead
        output_loading_info=True,
    )
    return TensorDifferences.from_info(info, dict(model.all_tied_weights_keys))


def find_fault(keys: TensorDifferences, new_head: bool) -> str:
    """Return why the model would not be the one whose weights these are; "" if it is.

    ``new_head``: the method adds a head, which may be missing.
    """
    missing = [name for name in keys.missing if not (new_head and is_head(name))]
    unexpected = [name for name in keys.unexpected if not OTHER_HEADS.fullmatch(name)]
    if missing:
        return (
            f"{_count(missing)} of the architecture in config.json {_are(missing)} missing from "
            f"the weights and would be random: {first_names(missing)}. "
            f"{_remedy(missing, keys.unexpected)}"
        )
    if keys.mismatched:
        texts = [
            f"{name} has {actual}, not {expected}" for name, actual, expected in keys.mismatched
        ]
        return (
            f"{_count(texts)} {_have(texts)} another shape than the model wants: "
            f"{first_names(texts)}. {_shape_remedy(keys.mismatched[0][0])}"
        )
    if unexpected:
        return (
            f"{_count(unexpected)} {_have(unexpected)} no place in the architecture of "
            f"config.json and would be dropped: {first_names(unexpected)}. "
            f"{_stray_remedy(unexpected)}"
        )
    return ""


def is_head(name: str) -> bool:
    """Return whether a tensor belongs to a head that a method adds, or to its pooler."""
    return name.partition(".")[0] in NEW_HEADS or ".pooler." in name


def _remedy(missing: list[str], unexpected: list[str]) -> str:
    """Return what to do about missing tensors; equal name endings mean a rename."""
    if any(UNMERGED.fullmatch(name) for name in unexpected):
        return "Adapters are not merged: save the result of `merge_and_unload`, and stage that."
    for name in missing:
        for candidate in unexpected:
            if candidate.endswith(f".{name}") or name.endswith(f".{candidate}"):
                return (
                    f"{candidate} looks like {name} under another prefix: rename the tensors, or "
                    "save the inner model with save_pretrained."
                )
    if unexpected:
        return (
            f"Instead there {_are(unexpected)} {first_names(unexpected)}: stage the config.json "
            "that belongs to these weights, or weights with the names that transformers uses."
        )
    if missing == ["lm_head.weight"]:
        return (
            "Stage the model with its head (a ...ForCausalLM); if the embedding is the head, set "
            "tie_word_embeddings."
        )
    return "Copy the whole model into the folder and stage it again."


def _shape_remedy(name: str) -> str:
    if is_head(name):
        return "Train as many labels as the staged head has, or stage the model without its head."
    return "Stage the config.json that belongs to these weights."


def _stray_remedy(unexpected: list[str]) -> str:
    if any(UNMERGED.fullmatch(name) for name in unexpected):
        return "Adapters are not merged: save the result of `merge_and_unload`, and stage that."
    return "Stage the config.json that belongs to these weights."


def _count(names: Iterable[Any]) -> str:
    number = len(list(names))
    return "1 tensor" if number == 1 else f"{number} tensors"


def _are(names: list[str]) -> str:
    return "are" if names[1:] else "is"


def _have(names: list[str]) -> str:
    return "have" if names[1:] else "has"


def _empty(tensor: TensorHeader) -> torch.Tensor:
    """Return a tensor of this shape without data; its type does not matter."""
    return torch.empty(tensor.shape, dtype=torch.float32, device="meta")


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress transformers' table and progress bars: the caller reports."""
    level = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(transformers_logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
