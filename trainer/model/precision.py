"""Map a run's precision to torch's dtype."""

import torch

from trainer.contract import RunSpec

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def dtype_of(spec: RunSpec) -> torch.dtype:
    """Return the dtype of the computing weights; masters are always fp32."""
    return _DTYPES[spec.precision]
