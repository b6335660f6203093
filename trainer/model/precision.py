"""The precision of the weights: the run's dtype, and QLoRA's frozen base in 4 bits.

The base is NF4 with double-quantized scales (Dettmers et al., 2023). It is quantized from its files
at every start, to the same bytes; nothing of it is saved. Adapters compute in the run's precision.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch

from trainer.contract import RunSpec

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def dtype_of(spec: RunSpec) -> torch.dtype:
    """Return the dtype of the computing weights; masters are always fp32."""
    return _DTYPES[spec.precision]


# At its import, which is also peft's, it warns of a faster kernel on a hub. Jobs ask no hub.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def import_uncompiled() -> None:
    """Import bitsandbytes without torch.compile, which would import its compilers.

    They are slow to import, and without one the kernels would compute other sums.
    """
    compiled, torch.compile = torch.compile, _uncompiled
    try:
        import bitsandbytes  # noqa: F401, PLC0415 - a full fine-tune saves its import
    finally:
        torch.compile = compiled


def four_bit_options(
    dtype: torch.dtype, skip_modules: list[str] | None, device: str | None = None
) -> dict[str, Any]:
    """Return options for `from_pretrained`: 4 bits for all linear layers but the output head.

    Args:
        skip_modules: Names of new heads; None: transformers finds a language model's head.
        device: None: the device of DeepSpeed's accelerator.
    """
    import_uncompiled()
    from transformers import BitsAndBytesConfig  # noqa: PLC0415 - others save the imports

    if device is None:
        from deepspeed.accelerator import get_accelerator  # noqa: PLC0415

        device = get_accelerator().current_device_name()
    return {
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
            llm_int8_skip_modules=skip_modules,
        ),
        "device_map": {"": device},
    }


def prevent_repacking(model: Any) -> None:  # noqa: ANN401 - transformers is untyped here
    """Keep bitsandbytes from repacking the weights in evaluation, as it does on newer CPUs.

    Repacked weights have no gradient and round differently: a run would not equal one that was
    resumed after an evaluation.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def _uncompiled(function: Callable[..., Any], **_: object) -> Callable[..., Any]:
    return function
