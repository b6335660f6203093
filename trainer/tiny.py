"""`python -m trainer.tiny OUT_DIR` builds `rekindle/tiny-llama`, a random 0.7 M parameter model.

It is made on the spot, so that tests and the demo need no download; built twice on one
machine, its files are equal byte by byte. Attention dropout is on: a resume that loses
the random state shows at once.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.models.llama import LlamaConfig, LlamaForCausalLM

from trainer.sample_data.tiny_chats import chats

NAME = "rekindle/tiny-llama"
VOCABULARY = 1024
PAD, BOS, END = "<|pad|>", "<|bos|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
    {{- '<|' + message['role'] + '|>' -}}
    {%- if message['role'] == 'assistant' -%}
        {%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}
    {%- else -%}
        {{- message['content'] + eos_token -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""


def build(folder: Path) -> None:
    """Write model, tokenizer and configuration into ``folder``, all files flat."""
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    LlamaForCausalLM(_config(tokenizer)).save_pretrained(folder)


def build_tokenizer() -> Any:  # noqa: ANN401 - transformers is untyped here
    """Train a byte-level BPE tokenizer on the text of `trainer.sample_data.tiny_chats`."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BOS, END, *ROLES],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (message["content"] for chat in chats(3000, seed=0) for message in chat)
    raw.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        model_max_length=512,
    )


def _config(tokenizer: Any) -> Any:  # noqa: ANN401
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        attention_dropout=0.1,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )


def main() -> None:
    """Read the argument and build."""
    parser = argparse.ArgumentParser(prog="python -m trainer.tiny", description=__doc__)
    parser.add_argument("out", type=Path)
    build(parser.parse_args().out)


if __name__ == "__main__":
    main()
