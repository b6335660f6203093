"""What a finished model says of itself: the report for programs, the card for people."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from tests.nodes.scripted_node import metrics
from tests.unit.trainer.process.trainer_spec import FILE, GRADED, SPEC
from tests.unit.trainer.process.trainer_spec import ME as WORLD_OF_ONE
from trainer.contract import Dpo, InputFile, Lora, PinnedModel, Ranked, RunSpec
from trainer.export.companion_files import copy_companions
from trainer.export.model_card import write_card
from trainer.export.report import TrainingReport, make_report
from trainer.rundir import RunDir
from trainer.sample_data.tiny_chats import write_samples
from trainer.state import TrainingState

ME = replace(WORLD_OF_ONE, world_size=2, generation=3)
VALID = InputFile(path="files/valid.jsonl", size=2, sha256="1" * 64)
WITH_VALIDATION = replace(SPEC, validation_file=VALID, ema_decay=0.0)
METRICS = replace(metrics(12), valid_loss=2.0)
STATE = TrainingState(
    step=12, consumed_samples=192, metrics=METRICS, tokens=480, valid_loss_before=3.0
)
CARD = """---
license: apache-2.0
base_model: someone/else
---
# The base
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Make an exported model of 33 parameters in two files, with adapters beside it."""
    folder = tmp_path / "model"
    (folder / "adapter").mkdir(parents=True)
    save_file({"a": torch.ones(4, 4, dtype=torch.bfloat16)}, folder / "model-1.safetensors")
    save_file({"b": torch.ones(16), "c": torch.ones(())}, folder / "model-2.safetensors")
    save_file({"d": torch.ones(9)}, folder / "adapter" / "adapter_model.safetensors")
    for name, rows in (("train.jsonl", 7), ("valid.jsonl", 3)):
        write_samples(tmp_path / "run" / "inputs" / "files" / name, rows=rows, seed=1)
    return folder


def report(
    model: Path, spec: RunSpec = WITH_VALIDATION, state: TrainingState = STATE
) -> TrainingReport:
    return make_report(model, RunDir(model.parent / "run"), spec, ME, state, 16, "a" * 64)


def card(model: Path, spec: RunSpec = WITH_VALIDATION, state: TrainingState = STATE) -> str:
    write_card(report(model, spec, state), spec, model)
    return (model / "README.md").read_text()


def header(text: str) -> Any:  # noqa: ANN401 - what YAML gives
    return yaml.safe_load(text.split("---\n")[1])


def test_a_report_says_what_was_trained_on_what_and_what_came_of_it(model: Path) -> None:
    model_report = report(model)

    weights = [(model / f"model-{n}.safetensors").stat().st_size for n in (1, 2)]
    assert (model_report.model.parameters, model_report.model.trained_parameters) == (33, 16)
    assert model_report.model.bytes == sum(weights)
    assert (model_report.steps, model_report.samples, model_report.tokens) == (12, 192, 480)
    assert model_report.training_file.to_plain() == {
        "name": "train.jsonl",
        "rows": 7,
        "sha256": FILE.sha256,
        "size": 1,
    }
    assert model_report.validation is not None
    assert (model_report.validation.before, model_report.validation.after) == (3.0, 2.0)
    assert model_report.validation.perplexity_before == pytest.approx(math.e**3)
    assert model_report.validation.perplexity_after == pytest.approx(math.e**2)
    assert model_report.versions["torch"] == torch.__version__
    assert (model_report.parameters_sha256, model_report.run_spec_sha256) == ("a" * 64, "5" * 64)


def test_grades_are_told_the_right_way_up(model: Path) -> None:
    spec = replace(WITH_VALIDATION, method="reinforcement", reinforcement=GRADED)
    metrics = replace(METRICS, valid_loss=-0.75)
    model_report = report(model, spec, replace(STATE, valid_loss_before=-0.25, metrics=metrics))

    assert model_report.validation is not None
    assert model_report.validation.measure == "reward"
    assert (model_report.validation.before, model_report.validation.after) == (0.25, 0.75)
    assert model_report.validation.perplexity_after is None


@pytest.mark.parametrize("loss", [None, math.nan, math.inf])
def test_a_loss_that_is_no_number_is_told_as_not_measured(model: Path, loss: float | None) -> None:
    state = replace(STATE, valid_loss_before=loss, metrics=replace(METRICS, valid_loss=loss))
    model_report = report(model, state=state)

    assert model_report.validation is not None
    assert (model_report.validation.before, model_report.validation.perplexity_after) == (
        None,
        None,
    )
    assert "| loss | not measured | not measured |" in card(model, state=state)
    too_large = report(model, state=replace(STATE, valid_loss_before=800.0)).validation
    assert too_large is not None
    assert (too_large.before, too_large.perplexity_before) == (800.0, None)


def test_only_a_mean_over_tokens_has_a_perplexity(model: Path) -> None:
    of_pairs = report(model, replace(WITH_VALIDATION, method="dpo", dpo=Dpo(beta=0.1))).validation

    assert of_pairs is not None
    assert (of_pairs.after, of_pairs.perplexity_after) == (2.0, None)


def test_a_card_names_base_data_and_results(model: Path) -> None:
    text = card(model)

    assert header(text) == {
        "base_model": "tiny",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["rekindle", "sft"],
    }
    assert f"| training | `train.jsonl` | 7 | `{FILE.sha256}` |" in text
    assert "| loss | 3 | 2 |" in text
    assert "| perplexity | 20.09 | 7.389 |" in text
    assert "AutoModelForCausalLM" in text


LORA = Lora(rank=4, alpha=8, dropout=0.1)
WORDS = {
    "dpo": (
        {"method": "dpo", "dpo": Dpo(beta=0.25, loss="ipo")},
        ["| beta | 0.25 |", "| loss | ipo |", "the reference is the base model"],
    ),
    "lora": (
        {"lora": LORA},
        [
            "rank 4, alpha 8, dropout 0.1",
            "`adapter/`",
            "- lora\n",
            "16 parameters; the model has 33",
        ],
    ),
    "qlora": (
        {"lora": replace(LORA, quantized=True)},
        ["in 4 bits (NF4)", "- qlora\n", "not of this model"],
    ),
    "reward": ({"method": "reward"}, ["Bradley-Terry", "- reward-model\n", "higher is better"]),
    "ranked": (
        {"method": "reward", "ranked": Ranked(), "answers_per_row": 4},
        ["a reward model of rankings", "| margin | from 0.1 to 0.5 |"],
    ),
    "classification": (
        {"method": "classification", "labels": ("ham", "spam")},
        ["| labels | `ham`, `spam` |", "pipeline_tag: text-classification", "classify("],
    ),
    "reinforcement": (
        {"method": "reinforcement", "reinforcement": GRADED},
        ["grades, GRPO", "- grpo\n", "| grader | string_check |", "| reward | -3 | -2 |"],
    ),
    "frozen": (
        {"train_last_n_layers": 2, "train_embeddings": False},
        ["; the last 2 layers; not the embeddings"],
    ),
    "averaged": ({"ema_decay": 0.99}, ["decay 0.99", "an average over the steps"]),
}


@pytest.mark.parametrize("case", WORDS)
def test_a_card_tells_the_procedure_in_the_words_of_its_method(model: Path, case: str) -> None:
    members, expected_words = WORDS[case]

    text = card(model, replace(WITH_VALIDATION, **members))  # type: ignore[arg-type]  # any member

    assert [phrase for phrase in expected_words if phrase not in text] == []


def test_a_card_without_a_validation_file_says_that_nothing_was_measured(model: Path) -> None:
    text = card(model, SPEC)

    assert "Not measured: the job had no validation file." in text
    assert "| validation |" not in text


def test_the_base_models_card_is_kept_beside_the_models_own_and_gives_its_license(
    model: Path,
) -> None:
    base = model.parent / "base"
    base.mkdir()
    (base / "README.md").write_text(CARD)
    (base / "BASE_README.md").write_text("The card of the base's base.")
    spec = replace(WITH_VALIDATION, base_model=PinnedModel(name="us/it", revision="9", files=()))

    copy_companions(base, model, spec)
    text = card(model, spec)

    assert (model / "BASE_README.md").read_text() == CARD
    assert header(text)["license"] == "apache-2.0"
    assert header(text)["base_model"] == "us/it"
    assert "[us/it](https://huggingface.co/us/it), revision `9`" in text
    assert "The card of the base model is `BASE_README.md`" in text


def test_a_model_of_another_job_is_named_by_the_base_that_its_line_began_with(model: Path) -> None:
    tuned = PinnedModel(name="ft:us/it:proj-1:mine:ftjob-2", revision="9", files=())

    text = card(model, replace(WITH_VALIDATION, base_model=tuned))

    assert header(text)["base_model"] == "us/it"
    assert "# it, fine-tuned" in text
    assert "based on [us/it](https://huggingface.co/us/it)" in text
    assert "(`ft:us/it:proj-1:mine:ftjob-2`), revision `9`" in text


@pytest.mark.parametrize("broken", ["---\nlicense: [\n---\n", "---\n- a\n---\n", "no header"])
def test_a_card_of_the_base_that_cannot_be_read_gives_no_license(model: Path, broken: str) -> None:
    (model / "BASE_README.md").write_text(broken)

    assert "license" not in header(card(model))
