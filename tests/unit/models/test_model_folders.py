"""What is staged is one whole model that can be trained; all else is refused, with a remedy."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.unit.models import model_folders as make
from tests.unit.models.model_folders import FIRST, INDEX, SECOND, SINGLE, Weights
from trainer.check_model.check import check_model
from trainer.tiny import build

Q = "model.layers.1.self_attn.q_proj.weight"
NORM, EMBEDDING = "model.norm.weight", "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the tiny model and return its folder."""
    folder = tmp_path_factory.mktemp("whole") / "tiny"
    build(folder)
    return folder


@pytest.fixture
def folder(model_folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the tiny model's folder that a test may break."""
    return make.copy_of(model_folder, tmp_path / "model")


def refusal(folder: Path) -> str:
    """Return the only fault that the check of the folder finds."""
    (fault,) = check_model(folder).faults
    return fault


def prefixed(prefix: str) -> Callable[[Weights], Weights]:
    return lambda weights: {prefix + name: tensor for name, tensor in weights.items()}


def without(*names: str) -> Callable[[Weights], Weights]:
    return lambda weights: {n: t for n, t in weights.items() if n not in names}


def having(**tensors: torch.Tensor) -> Callable[[Weights], Weights]:
    return lambda weights: weights | {n.replace("__", "."): t for n, t in tensors.items()}


def test_of_a_whole_model_sharded_or_not_nothing_is_said(model_folder: Path, folder: Path) -> None:
    report = check_model(model_folder)

    assert (report.faults, report.warnings) == ([], [])

    make.shard(folder)
    assert check_model(folder).faults == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without(Q), f"1 tensor .* would be random: {Q}. Copy the whole model"),
        (without(EMBEDDING), f"would be random: .*{EMBEDDING}"),
        (prefixed("_orig_mod."), f"_orig_mod.{EMBEDDING} looks like {EMBEDDING} under another"),
        (prefixed("base_model.model."), "looks like .* under another prefix"),
        (prefixed("language_model."), "30 tensors .*and 27 more"),
        (
            lambda w: {n.replace("q_proj.w", "q_proj.base_layer.w"): t for n, t in w.items()},
            "Adapters are not merged",
        ),
        (
            lambda w: {n.replace("self_attn", "attention"): t for n, t in w.items()},
            "Instead there are .*attention",
        ),
        (lambda w: w | {Q: w[Q][:64]}, rf"{Q} has \[64, 128\], not \[128, 128\]"),
        (lambda w: w | {EMBEDDING: w[EMBEDDING][:1000]}, r"has \[1000, 128\], not \[1024, 128\]"),
        (
            lambda w: {n: t.T if "down_proj" in n else t for n, t in w.items()},
            "3 tensors have another shape",
        ),
        (lambda w: dict.fromkeys(w, torch.empty(0)), "29 tensors have another shape"),  # ZeRO-3
        (having(model__layers__3__mlp__up_proj__weight=torch.ones(384, 128)), "would be dropped"),
        (having(model__layers__0__self_attn__q_proj__bias=torch.ones(128)), "no place in the arch"),
        (lambda w: {n: t.to(torch.float8_e4m3fn) for n, t in w.items()}, "of type F8_E4M3"),
        (lambda w: w | {Q: w[Q].to(torch.int8)}, f"{Q} is of type I8"),
        (having(lm_head__weight=torch.ones(1024, 128)), "ties lm_head.weight to .* other values"),
    ],
)
def test_weights_that_are_not_the_models_are_refused_by_name(
    change: Callable[[Weights], Weights], expected: str, folder: Path
) -> None:
    make.rewrite(folder, change)

    assert re_found(expected, refusal(folder))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"num_hidden_layers": 2}, "9 tensors have no place in the architecture"),
        ({"num_hidden_layers": 4}, "9 tensors .* would be random: model.layers.3"),
        ({"vocab_size": 1032}, r"has \[1024, 128\], not \[1032, 128\]"),
        ({"num_key_value_heads": 4}, "another shape than the model wants: .*k_proj"),
        ({"tie_word_embeddings": False}, "would be random: lm_head.weight"),
        ({"attention_bias": True}, "12 tensors .* would be random"),
        ({"model_type": "qwen3"}, "would be random: .*k_norm"),
        ({"model_type": "never_heard_of"}, "cannot build the model of config.json"),
        ({"model_type": None}, "has no model_type"),
        ({"hidden_size": "128"}, "cannot build the model of config.json"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, r"\(gptq\).*QLoRA quanti"),
        ({"quantization_config": {"quant_method": "awq"}}, r"\(awq\)"),
        ({"quantization": {"bits": 4, "group_size": 64}}, "has a quantization"),  # MLX
        ({"transformers_weights": "other.safetensors"}, "transformers_weights"),
        ({"eos_token_id": 5000}, "config.json has eos_token_id 5000, but the embedding has 1024"),
        ({"eos_token_id": [2, 1024]}, "eos_token_id 1024"),
        ({"bos_token_id": -5}, "bos_token_id -5"),
        ({"pad_token_id": 1023}, "pad_token_id 1023, but tokenizer.json has no such token"),
        ({"eos_token_id": "<|end|>"}, "eos_token_id '<|end|>'"),
    ],
)
def test_a_configuration_of_another_model_is_refused(
    members: dict[str, object], expected: str, folder: Path
) -> None:
    make.set_members(folder / "config.json", **members)

    assert re_found(expected, refusal(folder))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adapter_config.json", "belongs to a PEFT adapter.*merge_and_unload"),
        ("adapter_model.safetensors", "belongs to a PEFT adapter"),
        ("optimizer.pt", "optimizer.pt is training state"),
        ("training_args.bin", "is training state"),
        ("global_step500", "is training state"),
        ("consolidated.safetensors", "Mistral's own format"),
        ("model-q4_k_m.gguf", "is a GGUF file"),
        ("pytorch_model.bin", "pytorch_model.bin is a pickle"),
        ("weights.pkl", "weights.pkl is a pickle"),
        ("model.pt", "model.pt is a pickle"),
    ],
)
def test_what_is_no_part_of_a_model_is_refused_by_name(
    name: str, expected: str, folder: Path
) -> None:
    (folder / name).write_text("{}") if "." in name else (folder / name).mkdir()

    assert re_found(expected, check_model(folder).faults[0])


def absent(folder: Path) -> None:
    make.shard(folder)
    (folder / SECOND).unlink()


def misplaced(folder: Path) -> None:
    index = make.shard(folder)
    make.write_index(folder, index | {"model.layers.7.mlp.up_proj.weight": FIRST})


def exchanged(folder: Path) -> None:
    index = make.shard(folder)
    make.write_index(folder, {n: SECOND if f == FIRST else FIRST for n, f in index.items()})


def unnamed(folder: Path) -> None:
    (folder / "more.safetensors").write_bytes((folder / SINGLE).read_bytes())
    make.rewrite(folder, without(Q))


def two_sets(folder: Path) -> None:
    single = (folder / SINGLE).read_bytes()
    make.shard(folder)
    (folder / SINGLE).write_bytes(single)


def without_index(folder: Path) -> None:
    make.shard(folder)
    (folder / INDEX).unlink()


def leading_out(folder: Path) -> None:
    make.write_index(folder, dict.fromkeys(make.shard(folder), f"../{FIRST}"))


def empty_index(folder: Path) -> None:
    make.shard(folder)
    make.write_index(folder, {})


def cut_short(folder: Path) -> None:
    data = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(data[:-1000])


def too_long(folder: Path) -> None:
    with (folder / SINGLE).open("ab") as stream:
        stream.write(bytes(8))


def overlapping(folder: Path) -> None:
    def change(header: dict[str, dict[str, list[int]]]) -> None:
        header["model.layers.0.input_layernorm.weight"]["data_offsets"] = header[NORM][
            "data_offsets"
        ]

    make.rewrite_header(folder / SINGLE, change)


def lfs_weights(folder: Path) -> None:
    (folder / SINGLE).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9")


def lfs_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\n")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (absent, f"{INDEX} names {SECOND}, absent from the folder"),
        (misplaced, f"places model.layers.7.mlp.up_proj.weight in {FIRST}, which lacks it"),
        (exchanged, f"in {FIRST}, which lacks them"),
        (unnamed, "more.safetensors is not among .*with other tensors"),
        (two_sets, "two sets of weights"),
        (without_index, f"neither {SINGLE} nor {INDEX}"),
        (leading_out, "no usable weight_map"),
        (empty_index, "no usable weight_map"),
        (cut_short, f"{SINGLE} was cut short: .* ends at byte"),
        (too_long, "have unused bytes between them"),
        (overlapping, f"{SINGLE} is damaged: "),
        (lfs_weights, f"{SINGLE} is a Git LFS pointer"),
        (lfs_tokenizer, "tokenizer.json is a Git LFS pointer"),
        (lambda f: (f / SINGLE).write_bytes(b""), "not a safetensors file, or it was cut short"),
        (lambda f: (f / SINGLE).write_bytes(b"\xff" * 64), "not a safetensors file"),
        (lambda f: (f / SINGLE).rename(f / "weights.safetensors"), f"neither {SINGLE} nor"),
        (lambda f: (f / SINGLE).unlink(), f"neither {SINGLE} nor"),
        (lambda f: (f / "config.json").unlink(), "has no config.json"),
        (lambda f: (f / "config.json").write_text("hidden_size: 1"), "config.json is not JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json holds no JSON object"),
        (lambda f: (f / "generation_config.json").write_text("{"), "generation_config.json is not"),
        (lambda f: (f / "tokenizer.json").unlink(), r"no tokenizer.json. .*save_pretrained\(DIR\)"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "no vocabulary that can be read"),
        (
            lambda f: make.set_members(f / "tokenizer.json", pre_tokenizer={"type": "Nothing"}),
            "tokenizer.json of the base model cannot be read",
        ),
        (lambda f: make.add_token(f, "<new>", 1024), r"beyond the 1024 rows .*'<new>' \(1024\)"),
        (
            lambda f: make.set_members(f / "generation_config.json", eos_token_id=[2, 9999]),
            "generation_config.json has eos_token_id 9999",
        ),
    ],
)
def test_a_folder_that_cannot_be_a_model_is_refused(
    damage: Callable[[Path], object], expected: str, folder: Path
) -> None:
    damage(folder)

    assert re_found(expected, check_model(folder).faults[0])


def test_special_tokens_that_would_get_new_ids_need_rows(folder: Path) -> None:
    tokenizer = folder / "tokenizer_config.json"
    make.set_members(tokenizer, pad_token="[PAD]")
    assert "rows of the embedding that are still free" in check_model(folder).warnings[0]

    make.add_token(folder, "<last>", 1023)
    assert "names '[PAD]', absent from tokenizer.json" in refusal(folder)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda w: {n: t.double() for n, t in w.items()}, "of type F64"),
        (having(v_head__summary__weight=torch.ones(1, 128)), "tensors of other tasks are dropped"),
    ],
)
def test_odd_weights_that_train_are_told(
    change: Callable[[Weights], Weights], expected: str, folder: Path
) -> None:
    make.rewrite(folder, change)
    report = check_model(folder)

    assert report.faults == []
    assert re_found(expected, report.warnings[0])


def ending_otherwise(folder: Path) -> None:
    for name in ("config.json", "generation_config.json"):
        make.set_members(folder / name, eos_token_id=4)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda f: (f / "chat_template.jinja").unlink(), "no chat template"),
        (lambda f: make.add_token(f, "<image_soft_token>", 1024), "texts must not hold it"),
        (lambda f: (f / "trainer_state.json").write_text("{}"), "trainer_state.json is a training"),
        (ending_otherwise, "generation may not stop there"),
    ],
)
def test_odd_folders_that_train_are_told(
    damage: Callable[[Path], object], expected: str, folder: Path
) -> None:
    damage(folder)
    report = check_model(folder)

    assert report.faults == []
    assert re_found(expected, report.warnings[0])


@pytest.mark.parametrize(
    "change",
    [
        lambda w: {n.removeprefix("model."): t for n, t in w.items()},  # of the bare model
        lambda w: w | {"lm_head.weight": w[EMBEDDING].clone()},  # tied, and saved twice
        lambda w: {("lm_head.weight" if n == EMBEDDING else n): t for n, t in w.items()},
        having(model__layers__0__self_attn__rotary_emb__inv_freq=torch.ones(16)),
        lambda w: {n: t.half() if "norm" in n else t.bfloat16() for n, t in w.items()},
    ],
)
def test_what_transformers_loads_as_the_model_is_not_refused(
    change: Callable[[Weights], Weights], folder: Path
) -> None:
    make.rewrite(folder, change)

    assert check_model(folder).faults == []


def test_without_torch_headers_are_checked_and_a_warning_says_what_was_not(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "transformers.py").write_text(
        "raise ModuleNotFoundError('no', name='transformers')"
    )
    make.rewrite(folder, without(Q))

    report = told_without_torch(folder, tmp_path)
    assert report["faults"] == []
    assert "transformers is not installed" in report["warnings"][-1]

    cut_short(folder)
    assert "was cut short" in told_without_torch(folder, tmp_path)["faults"][0]


def told_without_torch(folder: Path, path: Path) -> dict[str, list[str]]:
    """Return what the program prints if its import of ``transformers`` from ``path`` fails."""
    command = [sys.executable, "-m", "trainer.check_model", str(folder)]
    env = {**os.environ, "PYTHONPATH": str(path)}  # noqa: TID251 - a child's environment
    result = subprocess.run(command, env=env, capture_output=True, check=True)
    report: dict[str, list[str]] = json.loads(result.stdout)
    return report


def re_found(pattern: str, text: str) -> bool:
    assert re.search(pattern, text), text
    assert text.count(". ") <= 1, text  # a message has two sentences at most
    return True
