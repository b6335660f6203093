"""Load a model whole, or raise NonRetryableError.

transformers only logs a missing tensor and gives it random values. Here each missing, misshapen or
misplaced tensor is an error that names it, before gigabytes are read.
"""

import logging
from pathlib import Path
from typing import Any

from trainer.check_model.files import check_types
from trainer.model.safetensors_headers import (
    TensorHeader,
    UnusableModelError,
    read_json,
    read_weights,
)
from trainer.model.tensor_names import TensorDifferences, compare_tensors, find_fault
from trainer.process.non_retryable import NonRetryableError

LOADER_FAULTS = (  # how transformers begins the errors about a checkpoint
    "Error(s) in loading state_dict",
    "We encountered some issues during automatic conversion",
    "You set `ignore_mismatched_sizes`",
)
log = logging.getLogger("trainer")


def require_complete(
    kind: Any,  # noqa: ANN401 - a class of transformers such as AutoModelForCausalLM
    folder: Path,
    *,
    new_head: bool,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Raise NonRetryableError unless the folder holds every tensor of the ``kind`` of model.

    ``new_head``: the method adds a head, which may be missing. ``settings`` change the
    configuration. Reads headers only. Must not be called while an HfDeepSpeedConfig is alive.
    """
    try:
        keys = compare_tensors(kind, folder, _tensors(folder), **settings)
    except UnusableModelError as error:
        raise _load_error(str(error)) from error
    _refuse_faults(keys, new_head=new_head)
    if keys.unexpected:
        log.warning("model.dropped tensors of other tasks: %s", keys.unexpected_text)


def load_complete(
    kind: Any,  # noqa: ANN401
    folder: Path,
    *,
    new_head: bool = False,
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Return the model that `from_pretrained` loads with ``options``; no code of its own is run.

    Raises NonRetryableError where tensors are missing. Call `require_complete` first:
    under ZeRO-3 transformers sees a wrong shape on one rank only, and drops tensors silently.
    """
    try:
        model, info = kind.from_pretrained(
            folder,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        )
    except RuntimeError as error:
        if str(error).startswith(LOADER_FAULTS):
            raise _load_error(str(error)) from error
        raise
    _refuse_faults(TensorDifferences.from_info(info, {}), new_head=new_head)
    return model


def _tensors(folder: Path) -> dict[str, TensorHeader]:
    """Return the tensors that transformers would load; raise UnusableModelError."""
    if (folder / "adapter_config.json").exists():
        raise UnusableModelError(
            "adapter_config.json makes transformers load an adapter into the model. Merge it "
            "(`merge_and_unload`), or stage the folder without it."
        )
    if not (folder / "config.json").is_file():
        raise UnusableModelError("its folder has no config.json. Stage the whole model again.")
    tensors = read_weights(folder)
    if faults := check_types(read_json(folder / "config.json"), tensors).faults:
        raise UnusableModelError(faults[0])
    return tensors


def _refuse_faults(keys: TensorDifferences, *, new_head: bool) -> None:
    if why := find_fault(keys, new_head=new_head):
        raise _load_error(why)


def _load_error(why: str) -> NonRetryableError:
    return NonRetryableError(f"the model cannot be loaded: {why}")
