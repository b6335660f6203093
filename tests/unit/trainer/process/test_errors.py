"""Errors that recur on any machine are told as such; what machines and networks do is not."""

from pathlib import Path

import pytest
import torch
from jinja2 import TemplateError

from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.engine.deepspeed_engine import build_engine
from trainer.loop import NotFiniteError
from trainer.process.non_retryable import (
    NonRetryableError,
    record_non_retryable,
    treat_as_retryable,
)
from trainer.rundir import RunDir


def _shapes() -> None:
    torch.zeros(2, 3) @ torch.zeros(2, 3)


def _outside_the_vocabulary() -> None:
    torch.nn.Embedding(4, 4)(torch.tensor([9]))


def _other_weights() -> None:
    torch.nn.Linear(2, 2).load_state_dict(torch.nn.Linear(2, 3).state_dict())


@pytest.mark.parametrize("fails", [_shapes, _outside_the_vocabulary, _other_weights])
def test_tensors_that_do_not_go_together_recur(tmp_path: Path, fails: object) -> None:
    assert callable(fails)
    with (
        pytest.raises((RuntimeError, IndexError)) as raised,
        record_non_retryable(RunDir(tmp_path), 0),
    ):
        fails()

    said = RunDir(tmp_path).non_retryable(0).read_text()
    assert said.startswith(f"{raised.type.__name__}: ")
    assert said.endswith("change the job, or report the traceback in its log")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("dpo.loss 'x' is not known; use sigmoid or ipo"),
        ModuleNotFoundError("No module named 'tiktoken'"),
        NotImplementedError("no SDPA for this model"),
        KeyError("model.layers.0"),
        TypeError("None is not a number"),
        TemplateError("no template"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_code_recur(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)), record_non_retryable(RunDir(tmp_path), 1):
        raise error

    said = RunDir(tmp_path).non_retryable(1).read_text()
    assert said.startswith(f"{type(error).__name__}: {error}. It would recur on any machine")


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        ConnectionResetError("a peer is gone"),
        RuntimeError("Connection closed by peer [127.0.0.1]:2000"),
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        torch.OutOfMemoryError("CUDA out of memory"),
        torch.distributed.DistBackendError("NCCL communicator was aborted: size mismatch"),
        MemoryError(),
        NotFiniteError("the loss of step 1 is nan"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_another_machine_may_not_meet_is_tried_again(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)), record_non_retryable(RunDir(tmp_path), 0):
        raise error

    assert not RunDir(tmp_path).non_retryable(0).exists()


def test_a_checkpoint_that_cannot_be_read_is_fetched_again(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="missing or cut"),
        record_non_retryable(RunDir(tmp_path), 0),
        treat_as_retryable(),
    ):
        raise ValueError("checkpoint file a is missing or cut; fetch it again")

    assert not RunDir(tmp_path).non_retryable(0).exists()


def test_a_model_of_which_nothing_is_trained_is_refused() -> None:
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)

    with pytest.raises(NonRetryableError, match="no parameter of the model is trained"):
        build_engine(frozen, SPEC, {})
