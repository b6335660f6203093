"""Two finished models and a reward model that grades answers, by the real programs."""

import json
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from tests.unit.trainer.process.trainer_spec import SPEC
from trainer import win_rate
from trainer.export.companion_files import copy_companions
from trainer.graders.answer import ModelAnswer
from trainer.graders.build import make_grader
from trainer.graders.judge import AT_ONCE, RewardModelJudge
from trainer.model.base_model import load_model
from trainer.model.tokenizer import load_tokenizer
from trainer.tiny import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models `a` and `b`, which differ, a reward model, and prompts."""
    root = tmp_path_factory.mktemp("wins")
    build(root / "a")
    shutil.copytree(root / "a", root / "b")
    model = AutoModelForCausalLM.from_pretrained(root / "b")
    torch.manual_seed(3)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights), alpha=0.05)
    model.save_pretrained(root / "b")
    torch.manual_seed(1)
    spec = replace(SPEC, method="reward", precision="fp32")
    pad_id = load_tokenizer(root / "a", "reward").pad_token_id
    load_model(root / "a", spec, {}, pad_id).save_pretrained(root / "judge")
    copy_companions(root / "a", root / "judge", spec)
    rows = [{"messages": [{"role": "user", "content": f"What is {n} plus 1?"}]} for n in range(4)]
    (root / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def run(folder: Path, a: str, b: str, *options: str) -> None:
    base_arguments = ["--prompts", "prompts.jsonl", "--judge", "judge", "--max-tokens", "5"]
    arguments = [a, b, *base_arguments, "--device", "cpu", *options]
    win_rate.main([str(folder / name) if (folder / name).exists() else name for name in arguments])


def test_the_same_call_gives_the_same_numbers_to_the_last_bit(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = []
    for name in ("one", "two"):
        out = tmp_path / name
        run(folder, "a", "b", "--json", "--temperature", "1", "--out", str(out))
        requests.append((json.loads(capsys.readouterr().out), out.read_bytes()))

    assert requests[0] == requests[1]
    call = requests[0][0]
    assert call["wins"] + call["losses"] + call["ties"] == call["prompts"] == 4
    rows = [json.loads(line) for line in requests[0][1].splitlines()]
    assert {row["a"]["text"] for row in rows} != {row["b"]["text"] for row in rows}
    leads = [row["a"]["reward"] - row["b"]["reward"] for row in rows]
    assert call["wins"] == sum(lead > 0 for lead in leads)


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        (("a", "judge"), (), "must be a model ForCausalLM"),
        (("a", "nowhere"), (), "is no folder"),
        (("a", "b"), ("--max-tokens", "512"), "row 1 has"),
        (("a", "b"), ("--judge", "a"), "must be a model ForSequenceClassification"),
    ],
)
def test_what_cannot_be_compared_is_said(
    folder: Path, models: tuple[str, str], options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        run(folder, *models, *options)


TODAY = date(2026, 11, 22)
CHAT = {"messages": [{"role": "user", "content": "What is 1 plus 1?"}]}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def judge(folder: Path) -> RewardModelJudge:
    """Return a judge that loads the reward model."""
    return RewardModelJudge(folder / "judge", CPU, torch.float32, TODAY)


def test_an_answer_is_worth_the_same_whoever_is_graded_beside_it(judge: RewardModelJudge) -> None:
    texts = [f"1 plus 1 is {n}." + " Indeed." * (n % 3) for n in range(AT_ONCE + 3)]
    answers = [ModelAnswer(text, {}, CHAT) for text in texts]
    batch_scores = [grade.score for grade in judge.grade(answers)]
    single_scores = [judge.grade([answer])[0].score for answer in answers]

    assert batch_scores == pytest.approx(single_scores, abs=1e-5)
    assert len({round(score, 6) for score in batch_scores}) > AT_ONCE


def test_a_formula_may_weigh_it_against_other_graders(
    judge: RewardModelJudge, tmp_path: Path
) -> None:
    grader = """{"type": "multi", "calculate_output": "2 * quality + brief", "graders": {
        "quality": {"type": "reward_model", "model": "ft:mine"},
        "brief": {"type": "string_check", "input": "{{sample.output_text}}", "reference": "2",
                  "operation": "eq"}}}"""
    answer = ModelAnswer("2", {}, CHAT)
    (grade,) = make_grader(grader, tmp_path, judge).grade([answer])

    assert grade.score == pytest.approx(2 * judge.grade([answer])[0].score + 1)
    with pytest.raises(ValueError, match="on the machines that train, and not here"):
        make_grader(grader, tmp_path)


def test_a_classifier_of_several_labels_is_no_reward_model(folder: Path, tmp_path: Path) -> None:
    AutoModelForSequenceClassification.from_pretrained(
        folder / "judge", num_labels=3, ignore_mismatched_sizes=True
    ).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="gives one number, this one 3"):
        RewardModelJudge(tmp_path, CPU, torch.float32, TODAY)
