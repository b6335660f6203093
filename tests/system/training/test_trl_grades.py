"""The losses of reinforcement learning beside TRL's; see `test_trl.py`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.system.training.test_trl import CLOSE, _model, _options, _tokenizer, _weights_changed
from tests.unit.trainer.process.trainer_spec import GRADED
from trainer.methods.interface import scaled_loss
from trainer.methods.reinforcement import make_policy_loss
from trainer.rollout.advantages import group_advantages, leave_one_out_advantages
from trainer.rollout.answer_batch import answer_batch
from trainer.rollout.experience import GradedAnswer
from trainer.tiny import build

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
ANSWERS = 4
TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the tiny model and return its folder."""
    folder = tmp_path_factory.mktemp("trl-grades") / "tiny"
    build(folder)
    return folder


def test_loss_and_a_step_of_grpo_are_trls(base: Path, tmp_path: Path) -> None:
    options = {"beta": 0.1, "loss_type": "bnpo", "epsilon": 0.2}
    trl_trainer = _trainer(trl.GRPOTrainer, trl.GRPOConfig, base, tmp_path, **options)
    rows = _rows(group_advantages)

    assert max(_apart(base, rows, trl_trainer, "grpo", beta=0.1)) < CLOSE


def test_loss_and_a_step_of_rloo_are_trls(base: Path, tmp_path: Path) -> None:
    trl_trainer = _trainer(trl.RLOOTrainer, trl.RLOOConfig, base, tmp_path, beta=0.0, epsilon=0.2)
    rows = _rows(leave_one_out_advantages)

    assert max(_apart(base, rows, trl_trainer, "rloo", beta=0.0)) < CLOSE


def _apart(
    base: Path,
    rows: list[GradedAnswer],
    trl_trainer: Any,  # noqa: ANN401
    algorithm: str,
    beta: float,
) -> tuple[float, float]:
    """By how much the losses differ, and the weights at most after one step."""
    settings = replace(GRADED, algorithm=algorithm, temperature=TEMPERATURE)
    policy, method = _weights_changed(_model(base, "supervised")), make_policy_loss(settings)
    batch = answer_batch(rows, 0, least=1, beta=beta)
    loss = scaled_loss(method.scores(policy, batch).loss, method.units(batch), 1)
    their_loss = trl_trainer._compute_loss(trl_trainer.model, _their_batch(rows))
    loss.backward()
    their_loss.backward()
    for model in (policy, trl_trainer.model):
        torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-4).step()

    their_weights = trl_trainer.model.state_dict()
    weights = [
        (weight - their_weights[name]).abs().max().item()
        for name, weight in policy.state_dict().items()
    ]
    return abs(loss.item() - their_loss.item()), max(weights)


def _rows(advantages: Any) -> list[GradedAnswer]:  # noqa: ANN401
    """Answers of several lengths, given by another policy than the one that is trained."""
    draw = np.random.default_rng(5)
    grades = draw.random(ANSWERS)
    return [
        GradedAnswer(
            sample=0,
            number=n,
            born=0,
            ids=draw.integers(10, 900, 3 + 2 + n).astype(np.int32),
            prompt=3,
            grade=float(grades[n]),
            advantage=float(advantage),
            behaviour=(-6.5 + draw.random(2 + n)).astype(np.float32),
            reference=(-6.5 + draw.random(2 + n)).astype(np.float32),
        )
        for n, advantage in enumerate(advantages(grades.tolist()))
    ]


def _their_batch(rows: list[GradedAnswer]) -> dict[str, torch.Tensor]:
    """Prompts and answers apart, answers padded on the right."""

    def padded(parts: list[Any]) -> torch.Tensor:
        tensors = [torch.as_tensor(part) for part in parts]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)

    logps = padded([row.behaviour for row in rows])
    masks = padded([torch.ones(row.tokens, dtype=torch.long) for row in rows])
    return {
        "prompt_ids": padded([row.ids[: row.prompt].astype(np.int64) for row in rows]),
        "prompt_mask": torch.ones(len(rows), 3, dtype=torch.long),
        "completion_ids": padded([row.ids[row.prompt :].astype(np.int64) for row in rows]),
        "completion_mask": masks,
        "advantages": torch.tensor([row.advantage for row in rows], dtype=torch.float32),
        "old_per_token_logps": logps,
        "old_logps": (logps * masks).sum(1),
        "ref_per_token_logps": padded([row.reference for row in rows]),
        "num_items_in_batch": masks.sum(),
    }


def _trainer(kind: Any, options: Any, base: Path, folder: Path, **overrides: object) -> Any:  # noqa: ANN401
    trainer = kind(
        model=_weights_changed(_model(base, "supervised")),
        reward_funcs=[_no_grades],
        args=_options(options, folder, num_generations=2, temperature=TEMPERATURE, **overrides),
        train_dataset=datasets.IterableDataset.from_generator(lambda: iter([{"prompt": "a"}])),
        processing_class=_tokenizer(base),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def _no_grades(completions: list[str], **_: object) -> list[float]:
    return [0.0] * len(completions)
