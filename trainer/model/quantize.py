"""QLoRA's frozen base in 4 bits: NF4, its scales quantized once more (Dettmers et al., 2023).

Quantized anew from the base's files at every start, always to the same bytes; nothing of it is
saved. Adapters compute in the precision of the run, as everything else does.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch

# At its import, which is also peft's, it warns of a faster kernel on a hub. Jobs ask no hub.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def import_uncompiled() -> None:
    """Import bitsandbytes with nothing of it compiled by torch, which would take its compilers.

    They are slow to import, and where a machine has none it would fall back on other sums.
    """
    compiled, torch.compile = torch.compile, _uncompiled
    try:
        import bitsandbytes  # noqa: F401, PLC0415 - a full fine-tune saves its import
    finally:
        torch.compile = compiled


def four_bit_options(
    dtype: torch.dtype, spared: list[str] | None, device: str | None = None
) -> dict[str, Any]:
    """What `from_pretrained` is told: all linear layers but the output head, on this device.

    ``device``: None for the one of DeepSpeed's accelerator.

    ``spared`` names heads that are new; None: transformers finds a language model's. Of a new one
    with a bias it finds the bias alone.
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
            llm_int8_skip_modules=spared,
        ),
        "device_map": {"": device},
    }


def prevent_repacking(model: Any) -> None:  # noqa: ANN401 - transformers is untyped here
    """Keep evaluation from repacking the weights, which bitsandbytes does on newer CPUs for good.

    What is repacked has no gradient any more, and another rounding: a run that was evaluated once
    would go on otherwise than one that was resumed after it.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def _uncompiled(function: Callable[..., Any], **_: object) -> Callable[..., Any]:
    return function
