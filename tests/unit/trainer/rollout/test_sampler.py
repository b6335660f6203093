"""How answers are made: which tokens they get, and what is on the host meanwhile."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.unit.trainer.process.trainer_spec import GRADED
from trainer import answer
from trainer.contract import Reinforcement
from trainer.model.tokenizer import load_tokenizer
from trainer.rollout.rollouts import offload_optimizer
from trainer.rollout.sampler import Sampler, sample_tokens
from trainer.tiny import build

PROMPTS = [[1, 4, 300, 301], [1, 4, 302], [1, 4, 303, 304, 305]]
DRAWS = [(0, 0), (0, 1), (7, 0)]


class Engine:
    """As much of DeepSpeed's engine as a sampler uses."""

    device = torch.device("cpu")

    def __init__(self, module: Any) -> None:  # noqa: ANN401
        self.module = module

    def zero_optimization_stage(self) -> int:
        return 0

    def train(self, mode: bool = True) -> None:
        self.module.train(mode)

    def eval(self) -> None:
        self.module.eval()


def sampler(base: Path, seed: int = 7, settings: Reinforcement = GRADED) -> Sampler:
    """Over a fresh copy of the model."""
    model = AutoModelForCausalLM.from_pretrained(base)
    model.generation_config.repetition_penalty = 9.0  # the base's, which is no policy
    return Sampler(Engine(model), load_tokenizer(base), settings, seed, lambda: False)


def test_an_answer_is_the_same_whoever_else_is_answered_beside_it(base: Path) -> None:
    together = sampler(base).answers(PROMPTS, DRAWS)
    torch.manual_seed(99)  # nothing of a generator's state is in it
    alone = [sampler(base).answers([p], [d])[0] for p, d in zip(PROMPTS, DRAWS, strict=True)]

    assert together == alone
    assert all(1 <= len(answer) <= GRADED.max_answer_tokens for answer in together)


def test_answers_to_one_prompt_differ_and_another_seed_gives_others(base: Path) -> None:
    first, second = sampler(base).answers([PROMPTS[0]] * 2, [(0, 0), (0, 1)])
    (reseeded,) = sampler(base, seed=8).answers([PROMPTS[0]], [(0, 0)])

    assert first != second
    assert first != reseeded


def test_without_draws_the_likeliest_tokens_are_taken(base: Path) -> None:
    (tokens,) = sampler(base).answers([PROMPTS[0]], None)
    model = AutoModelForCausalLM.from_pretrained(base).eval()
    ids = list(PROMPTS[0])
    with torch.no_grad():
        for _ in tokens:
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))

    assert ids == [*PROMPTS[0], *tokens]


def test_tokens_come_as_often_as_the_model_says(base: Path) -> None:
    count, one_token = 1500, replace(GRADED, max_answer_tokens=1)
    answers = sampler(base, settings=one_token).answers(
        [PROMPTS[0]] * count, [(n, 0) for n in range(count)]
    )
    model = AutoModelForCausalLM.from_pretrained(base).eval()
    with torch.no_grad():
        expected = model(torch.tensor([PROMPTS[0]])).logits[0, -1].softmax(-1).numpy()
    frequencies = np.bincount([answer[0] for answer in answers], minlength=len(expected)) / count
    for token in np.argsort(expected)[-5:]:
        spread = (expected[token] * (1 - expected[token]) / count) ** 0.5
        assert abs(frequencies[token] - expected[token]) < 5 * spread


def test_only_the_likeliest_are_drawn_where_that_is_asked_for() -> None:
    probabilities = torch.tensor([[0.5, 0.05, 0.3, 0.15]])
    draws = torch.linspace(0, 1, 1001)[:-1, None]
    logits = probabilities.log().expand(1000, 4)

    counts = {
        top_p: torch.bincount(sample_tokens(logits, draws, top_p)[:, 0], minlength=4).tolist()
        for top_p in (1.0, 0.9, 0.4)
    }
    assert counts[1.0] == pytest.approx([500, 50, 300, 150], abs=2)
    assert counts[0.9] == pytest.approx([1000 * p / 0.95 for p in (0.5, 0, 0.3, 0.15)], abs=2)
    assert counts[0.4] == [1000, 0, 0, 0]


def test_what_cannot_be_is_never_drawn() -> None:
    logits = torch.full((3, 5), -torch.inf)
    logits[:, 2] = 0.0
    draws = torch.tensor([[0.0], [0.5], [1 - 2**-53]], dtype=torch.float64)

    assert sample_tokens(logits, draws, 1.0)[:, 0].tolist() == [2, 2, 2]


def test_an_answer_stands_alone_and_progress_says_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    build(tmp_path / "model")
    capfd.readouterr()
    monkeypatch.setattr(sys, "argv", ["answer", str(tmp_path / "model"), "Hello?", "--tokens", "4"])

    assert answer.main() == 0

    output = capfd.readouterr()
    assert len(output.out.splitlines()) == 1
    assert output.err.index("loading") < output.err.index("answering")
    assert "Loading weights" not in output.err


@dataclass
class Offloading:
    """As much of DeepSpeed's as is asked; it says what it was told."""

    optimizer: torch.optim.Optimizer = field(
        default_factory=lambda: torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
    )
    calls: list[object] = field(default_factory=list)

    def offload_states(self, include: list[object]) -> None:
        self.calls.append({str(getattr(state, "value", state)) for state in include})

    def reload_states(self) -> None:
        self.calls.append("back")


def test_masters_and_moments_go_and_come_back_even_if_answering_fails() -> None:
    engine = Offloading()

    with pytest.raises(RuntimeError, match="no memory"), offload_optimizer(engine, enabled=True):
        raise RuntimeError("no memory")

    assert engine.calls == [{"optim_states", "hp_params"}, "back"]


def test_nothing_moves_unless_it_is_asked_for() -> None:
    engine = Offloading()

    with offload_optimizer(engine, enabled=False):
        pass

    assert engine.calls == []
