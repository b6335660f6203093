"""A reward model that grades answers."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import torch

from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.export.companion_files import copy_companions
from trainer.graders.answer import ModelAnswer
from trainer.graders.build import make_grader
from trainer.graders.judge import AT_ONCE, RewardModelJudge
from trainer.model.base_model import load_model
from trainer.model.tokenizer import load_tokenizer
from trainer.tiny import build

TODAY = date(2026, 11, 22)
CHAT = {"messages": [{"role": "user", "content": "What is 1 plus 1?"}]}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny model, which is no reward model."""
    folder = tmp_path_factory.mktemp("judge") / "tiny"
    build(folder)
    return folder


@pytest.fixture(scope="module")
def judge(base: Path) -> RewardModelJudge:
    """Return a judge that loads a reward model as a job exports it."""
    folder = base.parent / "reward"
    torch.manual_seed(1)
    pad_id = load_tokenizer(base, "reward").pad_token_id
    spec = replace(SPEC, method="reward", precision="fp32")
    load_model(base, spec, {}, pad_id).save_pretrained(folder)
    copy_companions(base, folder, spec)
    return RewardModelJudge(folder, CPU, torch.float32, TODAY)


def test_an_answer_is_worth_the_same_whoever_is_graded_beside_it(judge: RewardModelJudge) -> None:
    texts = [f"1 plus 1 is {n}." + " Indeed." * (n % 3) for n in range(AT_ONCE + 3)]
    answers = [ModelAnswer(text, {}, CHAT) for text in texts]
    together = [grade.score for grade in judge.grade(answers)]
    alone = [judge.grade([answer])[0].score for answer in answers]

    assert together == pytest.approx(alone, abs=1e-5)
    assert len({round(score, 6) for score in together}) > AT_ONCE


def test_a_formula_may_weigh_it_against_other_graders(
    judge: RewardModelJudge, tmp_path: Path
) -> None:
    grader = """{"type": "multi", "calculate_output": "2 * quality + brief", "graders": {
        "quality": {"type": "reward_model", "model": "ft:mine"},
        "brief": {"type": "string_check", "input": "{{sample.output_text}}", "reference": "2",
                  "operation": "eq"}}}"""
    answer = ModelAnswer("2", {}, CHAT)
    (found,) = make_grader(grader, tmp_path, judge).grade([answer])

    assert found.score == pytest.approx(2 * judge.grade([answer])[0].score + 1)


def test_a_classifier_of_several_labels_is_no_reward_model(
    base: Path, judge: RewardModelJudge
) -> None:
    judge_folder, folder = base.parent / "reward", base.parent / "classes"
    from transformers import AutoModelForSequenceClassification as Classifier  # noqa: PLC0415

    Classifier.from_pretrained(
        judge_folder, num_labels=3, ignore_mismatched_sizes=True
    ).save_pretrained(folder)
    with pytest.raises(ValueError, match="gives one number, this one 3"):
        RewardModelJudge(folder, CPU, torch.float32, TODAY)
