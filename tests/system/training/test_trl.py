"""Our losses beside TRL's, which is no dependency: `pip install trl==1.16.0`, then these run."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rendering.tokens import Tokens
from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import Dpo as Settings
from trainer.data.batch import Batch, padded
from trainer.methods.dpo import DpoLoss
from trainer.methods.forward import log_probabilities
from trainer.methods.interface import Method, scaled_loss
from trainer.methods.orpo import OrpoLoss
from trainer.methods.orpo import OrpoOptions as OrpoSettings
from trainer.methods.reward import RewardLoss
from trainer.model.base_model import load_model
from trainer.sample_data.tiny_chats import write_preferences
from trainer.tiny import build

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
PAIRS = 6
CLOSE = 1e-6


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the tiny model with preferences beside it and return its folder."""
    folder = tmp_path_factory.mktemp("trl") / "tiny"
    build(folder)
    write_preferences(folder.parent / "rows.jsonl", PAIRS, seed=1)
    return folder


@pytest.mark.parametrize("loss", ["sigmoid", "ipo"])
def test_loss_and_a_step_of_dpo_are_trls(base: Path, loss: str, tmp_path: Path) -> None:
    options = _options(trl.DPOConfig, tmp_path, beta=0.2, loss_type=[loss])
    trl_trainer = trl.DPOTrainer(
        model=_weights_changed(_model(base, "dpo")),
        ref_model=_model(base, "dpo"),
        args=options,
        train_dataset=_rows(base),
        processing_class=_tokenizer(base),
    )
    inputs = next(iter(trl_trainer.get_train_dataloader()))
    their_loss = trl_trainer._compute_loss(trl_trainer.model, dict(inputs), return_outputs=False)

    reference = _model(base, "dpo")
    dpo_loss = DpoLoss(Settings(beta=0.2, loss=loss), lambda batch: _frozen(reference, batch))
    trained = [[bool(t) for t in row] for row in inputs["completion_mask"]]
    _require_one_step_alike(
        _weights_changed(_model(base, "dpo")), dpo_loss, inputs, trained, trl_trainer, their_loss
    )


def test_loss_and_figures_of_orpo_are_trls(base: Path) -> None:
    """But for the tokens of the prompt, which TRL's first term has and ours has not."""
    trainer = pytest.importorskip("trl.experimental.orpo").ORPOTrainer
    model, ask = _model(base, "orpo"), [5, 6, 7]
    answers = [torch.randint(8, 60, (3 + n % 4,)).tolist() for n in range(2 * PAIRS)]
    rows = [Tokens(ask + ids, [False] * len(ask) + [True] * len(ids)) for ids in answers]
    batch = padded(rows, pad_id=0)
    assert batch.attention is not None
    labels = torch.where(batch.attention.bool(), batch.ids, -100)
    labels[:, : len(ask)] = -100
    logits = model(input_ids=batch.ids, attention_mask=batch.attention).logits
    logps = trainer.get_batch_logps(logits, labels, average_log_prob=True)
    trl_trainer = SimpleNamespace(beta=0.2, accelerator=SimpleNamespace(device="cpu"))
    ratio, *rewards, _, _ = trainer.odds_ratio_loss(trl_trainer, logps[0::2], logps[1::2])

    scores = OrpoLoss(OrpoSettings(beta=0.2)).scores(model, batch)

    assert scores.loss.item() == pytest.approx((-logps[0::2] - ratio).sum().item(), rel=CLOSE)
    assert float(scores.margin) == pytest.approx((rewards[0] - rewards[1]).sum().item(), abs=1e-5)
    assert scores.correct == (rewards[0] > rewards[1]).sum()


def test_loss_and_a_step_of_a_reward_model_are_trls(base: Path, tmp_path: Path) -> None:
    trl_trainer = trl.RewardTrainer(
        model=_model(base, "reward"),
        args=_options(trl.RewardConfig, tmp_path),
        train_dataset=_rows(base),
        processing_class=_tokenizer(base),
    )
    inputs = next(iter(trl_trainer.get_train_dataloader()))
    their_loss = trl_trainer.compute_loss(trl_trainer.model, dict(inputs))

    trained = [[bool(t) for t in row] for row in inputs["attention_mask"]]
    _require_one_step_alike(
        _model(base, "reward"), RewardLoss(), inputs, trained, trl_trainer, their_loss
    )


def _require_one_step_alike(
    model: Any,  # noqa: ANN401
    method: Method,
    inputs: dict[str, torch.Tensor],
    trained: list[list[bool]],
    trl_trainer: Any,  # noqa: ANN401
    their_loss: torch.Tensor,
) -> None:
    batch = _batch(inputs, trained)
    loss = scaled_loss(method.scores(model, batch).loss, method.units(batch), 1)
    loss.backward()
    their_loss.backward()
    for parameters in (model.parameters(), trl_trainer.model.parameters()):
        torch.optim.AdamW(parameters, lr=1e-4, eps=1e-4).step()

    assert loss.item() == pytest.approx(their_loss.item(), rel=CLOSE)
    their_weights = trl_trainer.model.state_dict()
    for name, weight in model.state_dict().items():
        assert torch.allclose(weight, their_weights[name], atol=CLOSE), name


def _batch(inputs: dict[str, torch.Tensor], trained: list[list[bool]]) -> Batch:
    """Theirs has all preferred ones first."""
    lengths = inputs["attention_mask"].sum(1).tolist()
    rows = [
        Tokens(ids[:n], is_trained[:n])
        for ids, is_trained, n in zip(inputs["input_ids"].tolist(), trained, lengths, strict=True)
    ]
    half = len(rows) // 2
    return padded([rows[n + half * side] for n in range(half) for side in (0, 1)], pad_id=0)


def _model(base: Path, method: str) -> Any:  # noqa: ANN401
    torch.manual_seed(3)  # a reward model's head is new
    model = load_model(base, replace(SPEC, method=method, precision="fp32"), {}, pad_id=0)
    model.config.attention_dropout = 0.0
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.0
    return model


def _weights_changed(model: Any) -> Any:  # noqa: ANN401
    """Away from its reference, always by the same."""
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
    return model


def _frozen(reference: Any, batch: Batch) -> torch.Tensor:  # noqa: ANN401
    with torch.no_grad():
        return log_probabilities(reference, batch)


def _rows(base: Path) -> Any:  # noqa: ANN401
    """As TRL wants them: one by one, since a whole table would be pickled to be named."""
    names = {"chosen": "preferred_output", "rejected": "non_preferred_output"}
    rows = [json.loads(line) for line in (base.parent / "rows.jsonl").open()]
    examples = [
        {"prompt": row["input"]["messages"]} | {k: row[name] for k, name in names.items()}
        for row in rows
    ]
    return datasets.IterableDataset.from_generator(lambda: iter(examples))


def _tokenizer(base: Path) -> Any:  # noqa: ANN401
    from transformers import AutoTokenizer  # noqa: PLC0415 - only where TRL is

    return AutoTokenizer.from_pretrained(base)


def _options(make: Callable[..., Any], folder: Path, **overrides: object) -> Any:  # noqa: ANN401
    return make(
        output_dir=str(folder),
        per_device_train_batch_size=PAIRS,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        max_steps=1,
        **overrides,
    )
