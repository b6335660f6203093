"""Attention over packed sequences, each computed by itself.

One mask over the whole row would cost the square of the total length.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "rekindle_packed"  # for from_pretrained(attn_implementation=...)
NOT_KNOWN = ("softcap", "s_aux", "position_bias")  # options of other kinds of attention


def packed_attention(
    module: Any,  # noqa: ANN401 - transformers is untyped here
    query_BHTD: torch.Tensor,
    key_BHTD: torch.Tensor,
    value_BHTD: torch.Tensor,
    attention_mask: None,
    *,
    lengths: Sequence[int] | None = None,
    sliding_window: int | None = None,
    **options: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, None]:
    """Compute attention [B, T, H, D] within each sequence.

    Args:
        lengths: Tokens of the sequences in order; their sum is T.

    Raises ValueError for a model with another kind of attention.
    """
    if lengths is None or any(options.get(name) is not None for name in NOT_KNOWN):
        raise ValueError(
            f"{type(module).__name__} cannot take packed sequences; switch packing off"
        )
    # A slice's gradient is as long as the whole row; those of a split are put together once.
    splits = (t.split(tuple(lengths), dim=2) for t in (query_BHTD, key_BHTD, value_BHTD))
    outputs = []
    for length, *parts in zip(lengths, *splits, strict=True):
        mask = _window(length, sliding_window, query_BHTD.device)
        outputs.append(sdpa_attention_forward(module, *parts, mask, **options)[0])
    return torch.cat(outputs, dim=1), None


@lru_cache(maxsize=4)  # all layers of a micro-step share it
def _window(length: int, window: int | None, device: torch.device) -> torch.Tensor | None:
    """Return the sliding-window mask [1, 1, T, T]; None where the window covers everything."""
    if window is None or length <= window:
        return None
    at = torch.arange(length, device=device)
    back_TT = at[:, None] - at[None, :]
    return ((back_TT >= 0) & (back_TT < window))[None, None]


AttentionInterface.register(NAME, packed_attention)
