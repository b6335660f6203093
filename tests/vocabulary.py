"""Files of a small tokenizer with a chat template, created without torch; a token is a byte."""

import json
from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|pad|>", "<|bos|>", "<|end|>")
TEMPLATE = (
    "{{- bos_token -}}{%- for message in messages -%}{{- message['role'] + ': ' -}}"
    "{%- if message['role'] == 'assistant' -%}"
    "{%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}"
    "{%- else -%}{{- message['content'] + eos_token -}}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- 'assistant: ' -}}{%- endif -%}"
)


@cache
def tokenizer_files(template: str = TEMPLATE) -> dict[str, bytes]:
    """Return the tokenizer's files by name, as stored beside a model's weights."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *alphabet))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL))
    config = dict(zip(("pad_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    return {
        "chat_template.jinja": template.encode(),
        "tokenizer.json": backend.to_str().encode(),
        "tokenizer_config.json": json.dumps(config).encode(),
    }
