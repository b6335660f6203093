"""Models of every family pass the check as transformers saves them, and lack no tensor."""

import hashlib
import re
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
)

from tests.unit.models import model_folders as make
from tests.unit.models.model_folders import SINGLE
from trainer.check_model.check import check_model
from trainer.model.loading import require_complete
from trainer.sample_data.tiny_chats import write_samples
from trainer.tiny import build

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "gpt2", "opt")
ENCODERS = ("bert", "roberta")
SMALL = {
    "vocab_size": 1024,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
OWN = {
    **{family: {"num_key_value_heads": 2, "head_dim": 8} for family in FAMILIES[:7]},
    "phi3": {"num_key_value_heads": 2},
    "opt": {"word_embed_proj_dim": 32, "ffn_dim": 64},
}


@pytest.mark.parametrize(
    ("family", "tied"),
    [*((family, True) for family in (*FAMILIES, *ENCODERS)), ("llama", False), ("gpt2", False)],
)
def test_every_family_is_staged_as_it_is_saved_and_no_tensor_of_it_may_lack(
    family: str, tied: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    build(folder)
    config = AutoConfig.for_model(family, **SMALL, **OWN.get(family, {}), tie_word_embeddings=tied)
    kind = AutoModelForMaskedLM if family in ENCODERS else AutoModelForCausalLM
    kind.from_config(config).save_pretrained(folder)

    assert check_model(folder).faults == []
    require_complete(AutoModelForSequenceClassification, folder, new_head=True)
    if family in FAMILIES:
        require_complete(AutoModelForCausalLM, folder, new_head=False)
    lacking = sorted(n for n in load_file(folder / SINGLE) if re.search(r"\.(h|layers?)\.1\.", n))
    make.rewrite(folder, lambda weights: {n: t for n, t in weights.items() if n != lacking[0]})
    (fault,) = check_model(folder).faults
    assert f"would be random: {lacking[0]}" in fault


def digests(folder: Path) -> dict[str, str]:
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()}


def test_the_model_is_the_same_every_time(tmp_path: Path) -> None:
    build(tmp_path / "one")
    build(tmp_path / "two")

    first = digests(tmp_path / "one")
    assert first == digests(tmp_path / "two")
    assert set(first) >= {"config.json", "model.safetensors", "tokenizer.json"}


def test_samples_are_the_same_for_a_seed_and_more_of_them_begin_alike(tmp_path: Path) -> None:
    write_samples(tmp_path / "few.jsonl", rows=20, seed=1)
    write_samples(tmp_path / "many.jsonl", rows=40, seed=1)
    write_samples(tmp_path / "other.jsonl", rows=20, seed=2)
    few, many, other_seed = (
        (tmp_path / f"{name}.jsonl").read_text().splitlines() for name in ("few", "many", "other")
    )

    assert many[:20] == few != other_seed
