"""Read the shape of a base model from its config.json, and count its parameters exactly."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from service.domain.errors import InvalidRequest, UnsupportedModel
from service.domain.models.families import FAMILIES, NAMES, Family


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A stack of layers of attention and MLP; Llama's unless a field says otherwise."""

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
    gated: bool = True  # else the middle of a layer is one matrix in and one out
    fused: bool = False  # q, k and v are one matrix, and so are gate and up
    encoder: bool = False  # looks both ways: it can classify, and write nothing
    materializes: bool = False  # attention writes down every pair of tokens
    adapts: bool = True  # adapters can be merged into its matrices
    critic: bool = True  # a second one can say what a prefix is worth

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Read a model's config.json, or raise InvalidRequest(code="unsupported_model")."""
        family = _family(config)
        hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
        if config.get("word_embed_proj_dim", hidden) != hidden:
            raise _unsupported("its embeddings are narrower than its layers (word_embed_proj_dim)")
        positions = _size(config, "max_position_embeddings", 2048)
        shape: dict[str, Any] = {
            "hidden_size": hidden,
            "layers": _size(config, "num_hidden_layers"),
            "vocab_size": _size(config, "vocab_size"),
            "heads": heads,
            "kv_heads": _size(config, "num_key_value_heads", heads),
            "head_dim": _size(config, "head_dim", hidden // heads),
            "intermediate_size": _size(
                config, "intermediate_size", None if family.gated else 4 * hidden
            ),
            "max_positions": positions - family.unused_positions,
            "packs": family.packs,
            "tied": bool(config.get("tie_word_embeddings", family.tied)) or family.encoder,
            "gated": family.gated,
            "fused": family.fused,
            "encoder": family.encoder,
            "materializes": family.materializes,
            "adapts": family.adapts,
            "critic": family.critic,
        }
        bare = cls(parameters=0, **shape)
        return cls(parameters=_parameters(bare, family, config, positions), **shape)

    @property
    def q_size(self) -> int:
        """Return the width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Return the width of all key heads together, which is that of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def embedding_parameters(self) -> int:
        """Return the parameters of the token embedding (or the head's)."""
        return self.vocab_size * self.hidden_size

    @property
    def matrix_parameters(self) -> int:
        """Return the parameters that each token is multiplied with."""
        head = self.tied and not self.encoder
        return self.parameters - (0 if head else self.embedding_parameters)

    @property
    def layer_parameters(self) -> int:
        """Return the parameters of one layer, without embedding, head, last norm."""
        ends = (1 if self.tied else 2) * self.embedding_parameters + self.hidden_size
        return (self.parameters - ends) // self.layers

    @property
    def linear_parameters(self) -> int:
        """Return the parameters of all linear layers but the head (4-bit in QLoRA)."""
        return self.layers * sum(i * o for i, o in self.linear_layers())

    def lora_parameters(self, rank: int) -> int:
        """Return the parameters of adapters on every linear layer but the head."""
        return self.layers * rank * sum(i + o for i, o in self.linear_layers())

    def linear_layers(self) -> tuple[tuple[int, int], ...]:
        """Return (inputs, outputs) of every linear layer in one layer."""
        hidden, inner = self.hidden_size, self.intermediate_size
        qkv = [self.q_size, self.kv_size, self.kv_size]
        into = [inner, inner] if self.gated else [inner]
        if self.fused:
            qkv, into = [sum(qkv)], [sum(into)]
        return (
            *((hidden, out) for out in qkv),
            (self.q_size, hidden),
            *((hidden, out) for out in into),
            (inner, hidden),
        )


def _parameters(
    arch: Architecture, family: Family, config: Mapping[str, Any], positions: int
) -> int:
    """Count every tensor of the checkpoint once."""
    norm = (2 if family.biases else 1) * arch.hidden_size
    embeddings = (1 if arch.tied else 2) * arch.embedding_parameters
    if family.positions is not None:
        embeddings += (positions + family.positions) * arch.hidden_size
    if family.encoder:  # kinds of a token; the layer that a head of one token begins with
        kinds = _size(config, "type_vocab_size", family.kinds)
        embeddings += (kinds + arch.hidden_size + 1) * arch.hidden_size
    per_layer = sum(i * o for i, o in arch.linear_layers()) + family.norms * norm
    per_layer += _biases(arch, family, config)
    if family.qk_norm:
        per_layer += 2 * arch.head_dim
    return embeddings + arch.layers * per_layer + norm


def _biases(arch: Architecture, family: Family, config: Mapping[str, Any]) -> int:
    """Return the number of biases in one layer's linear layers."""
    if family.biases:
        return sum(out for _, out in arch.linear_layers())
    count = 0
    if family.qkv_bias or config.get("attention_bias", False):
        count += arch.q_size + 2 * arch.kv_size
    if config.get("attention_bias", False):
        count += arch.hidden_size  # the output projection has one too
    if config.get("mlp_bias", False):
        count += 2 * arch.intermediate_size + arch.hidden_size
    return count


def _family(config: Mapping[str, Any]) -> Family:
    name = config.get("model_type")
    if isinstance(name, str) and name in FAMILIES:
        return FAMILIES[name]
    raise _unsupported(f"its model_type is {name!r}; choose one of: {', '.join(sorted(FAMILIES))}")


def _size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    values = (config.get(name) for name in NAMES.get(key, (key,)))
    value = next((v for v in values if v is not None), default)  # null means the default there
    if type(value) is not int or value <= 0:
        raise _unsupported(f"its config.json has {key} {value!r}, where a positive integer belongs")
    return value


def _unsupported(why: str) -> InvalidRequest:
    return UnsupportedModel(f"This base model cannot be fine-tuned: {why}.", param="model")
