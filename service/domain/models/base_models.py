"""List well-known base models with their shapes, to plan with before one is staged.

Shapes are those of each model's config.json on its hub page (huggingface.co/NAME); of versions that
differ in it the shorter context counts. Licences are what the page names. The tests compare the
resulting numbers of parameters with the published ones. Gemma 3 of 4 billion parameters and more is
multimodal and is left out. Where a model is staged, its own files count, and nothing of this table.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

LLAMA_2, LLAMA_3 = "Llama 2 Community License", "Llama 3 Community License"
LLAMA_31, LLAMA_32 = "Llama 3.1 Community License", "Llama 3.2 Community License"
LLAMA_33 = "Llama 3.3 Community License"
APACHE, MIT = "Apache 2.0", "MIT"
QWEN, QWEN_RESEARCH = "Qwen License", "Qwen Research License"
GEMMA, OPT = "Gemma Terms of Use", "OPT License (research only)"


@dataclass(frozen=True, kw_only=True)
class SupportedModel:
    """A base model of the table."""

    name: str  # on the hub
    config: dict[str, Any]  # of its config.json, what its shape follows from
    licence: str

    @property
    def context(self) -> int:
        """Return the maximum context in tokens."""
        tokens: int = self.config["max_position_embeddings"]
        return tokens


def lookup(name: str) -> SupportedModel | None:
    """Return the model of this name, ignoring case as hubs do, or None."""
    return _BY_NAME.get(name.lower())


_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)

# Family and licence; then by line a name, with and without what stands in brackets, the sizes
# above, and "tied" where the head is the token embedding.
_TABLE: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "llama",
        LLAMA_2,
        """
        meta-llama/Llama-2-7b[-chat]-hf: 4096 32 32 32 128 11008 32000 4096
        meta-llama/Llama-2-13b[-chat]-hf: 5120 40 40 40 128 13824 32000 4096
        meta-llama/Llama-2-70b[-chat]-hf: 8192 80 64 8 128 28672 32000 4096
        """,
    ),
    (
        "llama",
        LLAMA_3,
        """
        meta-llama/Meta-Llama-3-8B[-Instruct]: 4096 32 32 8 128 14336 128256 8192
        meta-llama/Meta-Llama-3-70B[-Instruct]: 8192 80 64 8 128 28672 128256 8192
        """,
    ),
    (
        "llama",
        LLAMA_31,
        """
        meta-llama/Llama-3.1-8B[-Instruct]: 4096 32 32 8 128 14336 128256 131072
        meta-llama/Llama-3.1-70B[-Instruct]: 8192 80 64 8 128 28672 128256 131072
        meta-llama/Llama-3.1-405B[-Instruct]: 16384 126 128 8 128 53248 128256 131072
        """,
    ),
    (
        "llama",
        LLAMA_32,
        """
        meta-llama/Llama-3.2-1B[-Instruct]: 2048 16 32 8 64 8192 128256 131072 tied
        meta-llama/Llama-3.2-3B[-Instruct]: 3072 28 24 8 128 8192 128256 131072 tied
        """,
    ),
    (
        "llama",
        LLAMA_33,
        """
        meta-llama/Llama-3.3-70B-Instruct: 8192 80 64 8 128 28672 128256 131072
        """,
    ),
    (
        "qwen2",
        APACHE,
        """
        Qwen/Qwen2.5-0.5B[-Instruct]: 896 24 14 2 64 4864 151936 32768 tied
        Qwen/Qwen2.5-1.5B[-Instruct]: 1536 28 12 2 128 8960 151936 32768 tied
        Qwen/Qwen2.5-7B[-Instruct]: 3584 28 28 4 128 18944 152064 32768
        Qwen/Qwen2.5-14B[-Instruct]: 5120 48 40 8 128 13824 152064 32768
        Qwen/Qwen2.5-32B[-Instruct]: 5120 64 40 8 128 27648 152064 32768
        """,
    ),
    (
        "qwen2",
        QWEN_RESEARCH,
        """
        Qwen/Qwen2.5-3B[-Instruct]: 2048 36 16 2 128 11008 151936 32768 tied
        """,
    ),
    (
        "qwen2",
        QWEN,
        """
        Qwen/Qwen2.5-72B[-Instruct]: 8192 80 64 8 128 29568 152064 32768
        """,
    ),
    (
        "qwen3",
        APACHE,
        """
        Qwen/Qwen3-0.6B: 1024 28 16 8 128 3072 151936 40960 tied
        Qwen/Qwen3-1.7B: 2048 28 16 8 128 6144 151936 40960 tied
        Qwen/Qwen3-4B: 2560 36 32 8 128 9728 151936 40960 tied
        Qwen/Qwen3-8B: 4096 36 32 8 128 12288 151936 40960
        Qwen/Qwen3-14B: 5120 40 40 8 128 17408 151936 40960
        Qwen/Qwen3-32B: 5120 64 64 8 128 25600 151936 40960
        """,
    ),
    (
        "mistral",
        APACHE,
        """
        mistralai/Mistral-7B[-Instruct]-v0.1: 4096 32 32 8 128 14336 32000 32768
        mistralai/Mistral-7B[-Instruct]-v0.3: 4096 32 32 8 128 14336 32768 32768
        mistralai/Mistral-Nemo-Base-2407: 5120 40 32 8 128 14336 131072 131072
        mistralai/Mistral-Nemo-Instruct-2407: 5120 40 32 8 128 14336 131072 131072
        """,
    ),
    (
        "gemma2",
        GEMMA,
        """
        google/gemma-2-2b[-it]: 2304 26 8 4 256 9216 256000 8192 tied
        google/gemma-2-9b[-it]: 3584 42 16 8 256 14336 256000 8192 tied
        google/gemma-2-27b[-it]: 4608 46 32 16 128 36864 256000 8192 tied
        """,
    ),
    (
        "gemma3_text",
        GEMMA,
        """
        google/gemma-3-1b-pt: 1152 26 4 1 256 6912 262144 32768 tied
        google/gemma-3-1b-it: 1152 26 4 1 256 6912 262144 32768 tied
        """,
    ),
    (
        "phi3",
        MIT,
        """
        microsoft/Phi-3-mini-4k-instruct: 3072 32 32 32 96 8192 32064 4096
        microsoft/Phi-3.5-mini-instruct: 3072 32 32 32 96 8192 32064 131072
        microsoft/Phi-3-medium-4k-instruct: 5120 40 40 10 128 17920 32064 4096
        microsoft/phi-4: 5120 40 40 10 128 17920 100352 16384
        """,
    ),
    (
        "opt",
        OPT,
        """
        facebook/opt-125m: 768 12 12 12 64 3072 50272 2048 tied
        facebook/opt-1.3b: 2048 24 32 32 64 8192 50272 2048 tied
        facebook/opt-2.7b: 2560 32 32 32 80 10240 50272 2048 tied
        facebook/opt-6.7b: 4096 32 32 32 128 16384 50272 2048 tied
        facebook/opt-13b: 5120 40 40 40 128 20480 50272 2048 tied
        facebook/opt-30b: 7168 48 56 56 128 28672 50272 2048 tied
        facebook/opt-66b: 9216 64 72 72 128 36864 50272 2048 tied
        """,
    ),
    (
        "gpt2",
        MIT,
        """
        openai-community/gpt2: 768 12 12 12 64 3072 50257 1024 tied
        openai-community/gpt2-medium: 1024 24 16 16 64 4096 50257 1024 tied
        openai-community/gpt2-large: 1280 36 20 20 64 5120 50257 1024 tied
        openai-community/gpt2-xl: 1600 48 25 25 64 6400 50257 1024 tied
        """,
    ),
    (
        "bert",
        APACHE,
        """
        google-bert/bert-base-uncased: 768 12 12 12 64 3072 30522 512 tied
        google-bert/bert-large-uncased: 1024 24 16 16 64 4096 30522 512 tied
        google-bert/bert-base-cased: 768 12 12 12 64 3072 28996 512 tied
        """,
    ),
    (
        "roberta",
        MIT,
        """
        FacebookAI/roberta-base: 768 12 12 12 64 3072 50265 514 tied
        FacebookAI/roberta-large: 1024 24 16 16 64 4096 50265 514 tied
        """,
    ),
)


def _models() -> Iterator[SupportedModel]:
    for family, licence, lines in _TABLE:
        for line in lines.strip().splitlines():
            name, sizes = line.strip().split(":")
            numbers = sizes.replace("tied", "").split()
            config = dict(zip(_SIZES, map(int, numbers), strict=True))
            is_tied = sizes.endswith("tied")
            for version in _versions(name):
                yield SupportedModel(
                    name=version,
                    config={"model_type": family, "tie_word_embeddings": is_tied, **config},
                    licence=licence,
                )


def _versions(name: str) -> Iterator[str]:
    """Yield both names that a name with brackets stands for.

    >>> list(_versions("a/b[-it]")), list(_versions("a/c"))
    (['a/b', 'a/b-it'], ['a/c'])
    """
    before, bracket, remainder = name.partition("[")
    inside, _, after = remainder.partition("]")
    yield before + after
    if bracket:
        yield before + inside + after


BASE_MODELS: Final = tuple(_models())
_BY_NAME = {model.name.lower(): model for model in BASE_MODELS}
