"""Describe families of base models: how each differs from Llama, and its config.json names.

Exact numbers of parameters follow from these few facts; the tests compare them with those that the
models' cards state, and with models that transformers builds.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Family:
    """How the members of a model type differ from Llama."""

    qkv_bias: bool = False
    biases: bool = False  # every linear layer and every norm has one
    qk_norm: bool = False  # q and k have a norm of their own in every layer
    norms: int = 2  # of a layer
    gated: bool = True  # else the middle of a layer is one matrix in and one out
    fused: bool = False  # q, k and v are one matrix, and so are gate and up
    positions: int | None = None  # learned ones: rows beyond the number of positions
    unused_positions: int = 0  # of those that the config counts
    tied: bool = False  # where the config does not say
    kinds: int = 2  # of tokens that an encoder tells apart, where the config does not say
    encoder: bool = False  # looks both ways: it can classify, and write nothing
    adapts: bool = True  # its linear layers are torch's, which adapters are merged into
    critic: bool = True  # transformers has a class of it that says a number for every token
    packs: bool = False  # attention is plain, and gets all its options (trainer/model/attention.py)
    materializes: bool = False  # attention writes down every pair of tokens (transformers' "eager")


FAMILIES: Final[dict[str, Family]] = {
    "llama": Family(packs=True),
    "mistral": Family(packs=True),
    "qwen2": Family(qkv_bias=True, packs=True),
    "qwen3": Family(qk_norm=True, packs=True),
    "gemma2": Family(norms=4, tied=True, materializes=True),  # its scores are capped
    "gemma3_text": Family(norms=4, qk_norm=True, tied=True, critic=False),
    "phi3": Family(fused=True),
    "gpt2": Family(biases=True, gated=False, fused=True, positions=0, tied=True, adapts=False),
    "opt": Family(biases=True, gated=False, positions=2, tied=True, critic=False),
    "bert": Family(biases=True, gated=False, positions=0, tied=True, encoder=True),
    "roberta": Family(
        biases=True,
        gated=False,
        positions=0,
        unused_positions=2,
        tied=True,
        encoder=True,
        kinds=1,
    ),
}

# What other families call the numbers of Llama's config.json, most common name first.
NAMES: Final[dict[str, tuple[str, ...]]] = {
    "hidden_size": ("hidden_size", "n_embd"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "intermediate_size": ("intermediate_size", "ffn_dim", "n_inner"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
}
