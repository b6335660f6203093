"""Runs whose rows hold few targets or none, in real torchrun worlds on CPU."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.system.exactness import matrix, worlds
from tests.system.exactness.worlds import (
    LORA,
    by_grades,
    by_preferences,
    described,
    make_spec,
    prepare,
)
from trainer.contract import RunSpec
from trainer.rundir import RunDir

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny model with its data."""
    return worlds.build_inputs(tmp_path_factory.mktemp("learning") / "inputs")


def silenced(inputs: Path, trained: int) -> RunSpec:
    """Rows of which only the last ``trained`` have a trained token, one to a step."""
    rows = [
        json.loads(line) for line in (inputs / "files" / "train.jsonl").read_text().split("\n")[:-1]
    ]
    for row in rows[: len(rows) - trained]:
        for message in row["messages"]:
            if message["role"] == "assistant":
                message["weight"] = 0
    path = inputs / "files" / f"silenced-{trained}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = replace(make_spec(inputs), training_file=described(inputs, path))
    return replace(spec, global_batch=2, micro_batch=1, total_steps=8)


@pytest.mark.long
@pytest.mark.parametrize(
    "how",
    [
        {"zero_stage": 0, "precision": "fp32"},
        {"packing": True, "global_batch": 3},
        {"zero_stage": 3, "lora": LORA},
        {"ema_decay": 0.9, "zero_stage": 3},
    ],
    ids=str,
)
def test_steps_without_targets_are_skipped(
    inputs: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    spec = replace(silenced(inputs, trained=12), **how)
    result = matrix.compare(tmp_path, spec, inputs, stops=(3,))
    losses = [m.loss for m in worlds.read_metrics(RunDir(tmp_path / "whole")).values()]

    assert any(math.isnan(loss) for loss in losses)
    assert any(math.isfinite(loss) for loss in losses)
    assert result["parameters_equal"]


@pytest.mark.parametrize(
    "case",
    [
        "supervised",
        pytest.param("dpo", marks=pytest.mark.long),
        pytest.param("reward", marks=pytest.mark.long),
        pytest.param("grpo", marks=pytest.mark.long),
    ],
)
def test_a_run_that_can_learn_nothing_ends_at_once(inputs: Path, tmp_path: Path, case: str) -> None:
    spec = {
        "supervised": lambda: replace(silenced(inputs, trained=0), zero_stage=3, packing=True),
        "dpo": lambda: replace(by_preferences(inputs), max_seq_len=4, zero_stage=3),
        "reward": lambda: replace(by_preferences(inputs, None), max_seq_len=4),
        "grpo": lambda: replace(by_grades(inputs, "grpo"), max_seq_len=4),
    }[case]()
    rundir = prepare(tmp_path / "run", spec, inputs)
    process = worlds.start_world(rundir)
    output, _ = process.communicate(timeout=worlds.DEADLINE)

    messages = {rundir.non_retryable(rank).read_text() for rank in range(2)}
    assert len(messages) == 1, output
    assert f"within {spec.max_seq_len} tokens (training.max_seq_len) no row has" in messages.pop()
    assert not rundir.metrics.exists()
