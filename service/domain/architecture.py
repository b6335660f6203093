"""The shape of a base model, read from its config.json, and its exact number of parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from service.domain.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True)
class Family:
    """In what the members of a model type differ from Llama."""

    qkv_bias: bool = False
    qk_norm: bool = False  # q and k have a norm of their own in every layer
    packs: bool = False  # attention is plain, and gets all its options (trainer/attention.py)


FAMILIES: dict[str, Family] = {
    "llama": Family(packs=True),
    "mistral": Family(packs=True),
    "qwen2": Family(qkv_bias=True, packs=True),
    "qwen3": Family(qk_norm=True, packs=True),
}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A decoder of the Llama family: grouped-query attention, gated MLP, RMSNorm."""

    parameters: int
    hidden_size: int
    layers: int
    vocab_size: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    max_positions: int
    packs: bool = False  # sequences may be trained on side by side
    tied: bool = False  # the head is the token embedding

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Read a model's config.json, or raise InvalidRequest(code="unsupported_model")."""
        family = _family(config)
        hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
        kv_heads = _size(config, "num_key_value_heads", heads)
        head_dim = _size(config, "head_dim", hidden // heads)
        shape: dict[str, Any] = {
            "hidden_size": hidden,
            "layers": _size(config, "num_hidden_layers"),
            "vocab_size": _size(config, "vocab_size"),
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "intermediate_size": _size(config, "intermediate_size"),
            "max_positions": _size(config, "max_position_embeddings", 2048),
            "packs": family.packs,
            "tied": bool(config.get("tie_word_embeddings", False)),
        }
        linear = cls(parameters=0, **shape)
        return cls(parameters=_parameters(linear, family, config), **shape)

    @property
    def q_size(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together, and of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding (and of the head, where it is not the same)."""
        return self.vocab_size * self.hidden_size

    @property
    def layer_parameters(self) -> int:
        """Parameters of one decoder layer: all but embedding, head and the last norm."""
        ends = (1 if self.tied else 2) * self.embedding_parameters + self.hidden_size
        return (self.parameters - ends) // self.layers

    @property
    def linear_parameters(self) -> int:
        """Parameters of all linear layers but the head: what QLoRA holds in 4 bits."""
        return self.layers * sum(i * o for i, o in self.linear_layers())

    def lora_parameters(self, rank: int) -> int:
        """Trainable parameters of adapters of this rank on every linear layer but the head."""
        return self.layers * rank * sum(i + o for i, o in self.linear_layers())

    def linear_layers(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of every linear layer in one decoder layer."""
        hidden, inner = self.hidden_size, self.intermediate_size
        return (
            (hidden, self.q_size),
            (hidden, self.kv_size),
            (hidden, self.kv_size),
            (self.q_size, hidden),
            (hidden, inner),
            (hidden, inner),
            (inner, hidden),
        )


def _parameters(arch: Architecture, family: Family, config: Mapping[str, Any]) -> int:
    """Count every tensor of the checkpoint once."""
    embeddings = 1 if arch.tied else 2
    per_layer = sum(i * o for i, o in arch.linear_layers()) + 2 * arch.hidden_size
    if family.qkv_bias or config.get("attention_bias", False):
        per_layer += arch.q_size + 2 * arch.kv_size
    if config.get("attention_bias", False):
        per_layer += arch.hidden_size  # the output projection has one too
    if config.get("mlp_bias", False):
        per_layer += 2 * arch.intermediate_size + arch.hidden_size
    if family.qk_norm:
        per_layer += 2 * arch.head_dim
    return embeddings * arch.embedding_parameters + arch.layers * per_layer + arch.hidden_size


def _family(config: Mapping[str, Any]) -> Family:
    name = config.get("model_type")
    if isinstance(name, str) and name in FAMILIES:
        return FAMILIES[name]
    raise _unsupported(f"its model_type is {name!r}; choose one of: {', '.join(sorted(FAMILIES))}")


def _size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:  # null means the default in Hugging Face's files
        value = default
    if type(value) is not int or value <= 0:
        raise _unsupported(f"its config.json has {key} {value!r}, where a positive integer belongs")
    return value


def _unsupported(why: str) -> InvalidRequest:
    return InvalidRequest(
        f"This base model cannot be fine-tuned: {why}.", code="unsupported_model", param="model"
    )
