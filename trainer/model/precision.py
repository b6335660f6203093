"""What a run's precision is to torch."""

import torch

from trainer.contract import RunSpec

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def dtype_of(spec: RunSpec) -> torch.dtype:
    """Of the weights that compute; masters are fp32 always."""
    return _DTYPES[spec.precision]
