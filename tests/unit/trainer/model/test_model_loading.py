"""On a node a model is loaded whole, or the job ends at once with the tensors' names."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.unit.models import model_folders as make
from tests.unit.models.model_folders import SINGLE, Weights
from tests.unit.trainer.process.trainer_spec import GRADED, SPEC
from trainer.contract import Lora, RunSpec
from trainer.graders.judge import RewardModelJudge
from trainer.model import loading
from trainer.model.base_model import load_base, load_model, load_unquantized
from trainer.model.tokenizer import load_tokenizer
from trainer.process.non_retryable import NonRetryableError
from trainer.tiny import build

Q = "model.layers.1.self_attn.q_proj.weight"
PLAIN = replace(SPEC, precision="fp32")
LORA = replace(PLAIN, lora=Lora(rank=2, alpha=4, dropout=0.0))
QLORA = replace(PLAIN, lora=Lora(rank=2, alpha=4, dropout=0.0, quantized=True))
LABELS = replace(PLAIN, method="classification", labels=("bad", "good"))
PPO = replace(
    PLAIN, method="reinforcement", reinforcement=replace(GRADED, algorithm="ppo", answers=1)
)


def judge(folder: Path) -> RewardModelJudge:
    return RewardModelJudge(folder, torch.device("cpu"), torch.float32, date(2026, 11, 22))


Load = Callable[[Path], object]
WAYS: dict[str, Load] = {
    "full": lambda folder: load_model(folder, PLAIN, {}, 0),
    "LoRA": lambda folder: load_model(folder, LORA, {}, 0),
    "QLoRA": lambda folder: load_model(folder, QLORA, {}, 0),
    "ZeRO-3": lambda folder: load_model(folder, replace(PLAIN, zero_stage=3), {}, 0),
    "reward": lambda folder: load_model(folder, replace(PLAIN, method="reward"), {}, 0),
    "classification": lambda folder: load_model(folder, LABELS, {}, 0),
    "critic": lambda folder: load_model(folder, PPO, {}, 0),
    "reference": lambda folder: load_base(folder, PLAIN, {}),
    "original": lambda folder: load_unquantized(folder, QLORA, 0),
    "judge": judge,
}


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


def lacking_one(weights: Weights) -> Weights:
    return {name: tensor for name, tensor in weights.items() if name != Q}


def with_one_cut(weights: Weights) -> Weights:
    return weights | {Q: weights[Q][:64]}


@pytest.mark.parametrize(
    ("change", "load"),
    [
        *((lacking_one, load) for load in WAYS.values()),
        *(
            (change, WAYS["full"])
            for change in (
                with_one_cut,
                lambda weights: {f"_orig_mod.{name}": t for name, t in weights.items()},
                lambda weights: weights | {Q.replace("weight", "bias"): torch.ones(128)},
            )
        ),
    ],
)
def test_a_model_that_is_not_whole_is_non_retryable_however_it_is_loaded(
    change: Callable[[Weights], Weights], load: Load, folder: Path
) -> None:
    make.rewrite(folder, change)

    with pytest.raises(NonRetryableError, match=r"cannot be loaded: .*(tensor|q_proj)"):
        load(folder)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json"),
        (lambda f: (f / SINGLE).unlink(), SINGLE),
        (lambda f: (f / "adapter_config.json").write_text("{}"), "load an adapter"),
        (
            lambda f: make.set_members(f / "config.json", quantization_config={"bits": 4}),
            "are quantized",
        ),
    ],
)
def test_a_folder_that_is_no_plain_model_is_non_retryable(
    damage: Callable[[Path], object], expected: str, folder: Path
) -> None:
    damage(folder)

    with pytest.raises(NonRetryableError, match=expected):
        load_model(folder, PLAIN, {}, 0)


def test_a_head_of_other_labels_is_non_retryable(folder: Path) -> None:
    make.rewrite(folder, lambda weights: weights | {"score.weight": torch.ones(5, 128)})

    with pytest.raises(
        NonRetryableError, match=r"score.weight has \[5, 128\], not \[2, 128\]. Train as"
    ):
        load_model(folder, LABELS, {}, 0)


def test_a_base_model_without_a_head_is_no_judge(folder: Path) -> None:
    with pytest.raises(NonRetryableError, match=r"would be random: score.weight"):
        judge(folder)


def test_what_was_loaded_is_compared_once_more(folder: Path) -> None:
    make.rewrite(folder, lacking_one)

    with pytest.raises(NonRetryableError, match=f"would be random: {Q}"):
        loading.load_complete(AutoModelForCausalLM, folder, dtype=torch.float32)


def test_an_error_of_the_loader_about_the_checkpoint_is_non_retryable(folder: Path) -> None:
    make.rewrite(folder, with_one_cut)

    with pytest.raises(NonRetryableError, match="You set `ignore_mismatched_sizes`"):
        loading.load_complete(AutoModelForCausalLM, folder, dtype=torch.float32)


def test_tensors_of_another_task_are_dropped_with_a_line_in_the_log(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make.rewrite(folder, lambda weights: weights | {"v_head.summary.weight": torch.ones(1, 128)})

    with caplog.at_level(logging.WARNING, "trainer"):
        load_base(folder, PLAIN, {})

    assert "v_head.summary.weight" in caplog.text


@pytest.mark.parametrize("spec", [PLAIN, LABELS])
def test_the_comparison_draws_no_random_number(spec: RunSpec, folder: Path) -> None:
    before = torch.get_rng_state()
    loading.require_complete(AutoModelForCausalLM, folder, new_head=spec.method != "supervised")

    assert torch.equal(torch.get_rng_state(), before)


def test_a_tokenizer_that_cannot_be_used_is_non_retryable(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()

    with pytest.raises(NonRetryableError, match="has no chat template"):
        load_tokenizer(folder)
