"""Load exported files like any program: with plain transformers, and peft for adapters."""

import gc
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from trainer.contract import RunSpec
from trainer.model import precision, sequence_head
from trainer.model.precision import dtype_of
from trainer.verify.files import weight_bytes

SHARE = 1.2  # bytes of memory for each byte of weights
GPU_BESIDE, HOST_BESIDE = 2 << 30, 1 << 30  # bytes for libraries and activations
NAMES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.float64: "F64"}


class UnloadableError(Exception):
    """The files do not make up the model; the text says why."""


class NoMemoryError(Exception):
    """A model is too large for this process; the text says by how much."""


def choose_device(folder: Path, device: str, gpu_memory: int, host_memory: int) -> str:
    """Return where a model of this folder's size fits: ``device``, or else the CPU.

    The sizes are free bytes. Raises NoMemoryError.
    """
    size = weight_bytes(folder)
    if device != "cpu" and size * SHARE + GPU_BESIDE <= gpu_memory:
        return device
    needed = size * SHARE + HOST_BESIDE
    if needed <= host_memory:
        return "cpu"
    raise NoMemoryError(
        f"{folder.name} needs {needed / 1e9:.1f} GB of memory in a fresh process; free are "
        f"{host_memory / 1e9:.1f} GB of the node's and {gpu_memory / 1e9:.1f} GB of the GPU's"
    )


def load_export(folder: Path, spec: RunSpec, device: str, dtypes: tuple[str, ...]) -> Any:  # noqa: ANN401
    """Load the exported model; raise UnloadableError unless every weight is there and fits.

    ``dtypes``: safetensors' names of the allowed dtypes.
    """
    try:
        model, info = _kind(spec).from_pretrained(
            folder, output_loading_info=True, dtype="auto", **_plain(device)
        )
    except Exception as error:
        raise _as_unloadable(error) from error
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if problems := sorted(map(str, info.get(kind) or ())):
            raise UnloadableError(
                f"{len(problems)} {kind.replace('_', ' ')} when it is loaded, the first is "
                f"{problems[0]}"
            )
    names = {NAMES.get(p.dtype, str(p.dtype)) for p in model.parameters()}
    if unexpected := sorted(names - set(dtypes)):
        raise UnloadableError(
            f"its weights are {unexpected[0]}, in training {' and '.join(dtypes)}"
        )
    return model.eval()


def load_base(folder: Path, spec: RunSpec, device: str, pad_id: int, *, quantized: bool) -> Any:  # noqa: ANN401
    """Load the base model in the run's precision, with a new head if the method needs one."""
    options = sequence_head.head_settings(spec, pad_id) if sequence_head.has_head(spec) else {}
    if quantized:
        skip_modules = list(sequence_head.MODULES) if sequence_head.has_head(spec) else None
        options |= precision.four_bit_options(dtype_of(spec), skip_modules, device)
    model = _kind(spec).from_pretrained(folder, dtype=dtype_of(spec), **(_plain(device) | options))
    precision.prevent_repacking(model)
    return model.eval()


def with_adapter(base: Any, folder: Path) -> Any:  # noqa: ANN401
    """Add the exported adapter to the base model; raise UnloadableError."""
    precision.import_uncompiled()  # before peft does
    from peft import PeftModel  # noqa: PLC0415 - a full fine-tune saves its import

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*adapter keys")  # that are missing
        try:
            model = PeftModel.from_pretrained(base, folder, autocast_adapter_dtype=False)
        except Exception as error:
            raise _as_unloadable(error) from error
    return model.eval()


def merge_adapter(adapted: Any, device: str) -> Any:  # noqa: ANN401
    """Merge the adapter into its base by peft, in fp32 and rounded once, as the export is.

    In 16 bits peft would round the product of the adapter's matrices as well.
    """
    adapted.to("cpu")
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.float()
    return adapted.merge_and_unload().to(device).eval()


def free_memory() -> None:
    """Free the memory of models that are no longer referenced."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, on the GPU or the host."""
    allocation_failed = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return allocation_failed or isinstance(error, MemoryError | torch.OutOfMemoryError)


def _as_unloadable(error: Exception) -> Exception:
    if is_out_of_memory(error):
        return error
    return UnloadableError(f"{type(error).__name__}: {' '.join(str(error).split())}")


def _kind(spec: RunSpec) -> Any:  # noqa: ANN401
    return (
        AutoModelForSequenceClassification if sequence_head.has_head(spec) else AutoModelForCausalLM
    )


def _plain(device: str) -> dict[str, Any]:
    return {
        "device_map": {"": device},
        "use_safetensors": True,
        "local_files_only": True,
        "trust_remote_code": False,
    }
