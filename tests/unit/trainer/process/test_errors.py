"""Errors that recur, errors of one machine, and memory that ran out are told apart."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from jinja2 import TemplateError

from tests.unit.trainer.process.trainer_spec import ME as WORLD_OF_ONE
from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import Rung
from trainer.engine.deepspeed_engine import build_engine
from trainer.loop import NotFiniteError
from trainer.process.non_retryable import (
    NonRetryableError,
    record_non_retryable,
    treat_as_retryable,
)
from trainer.process.out_of_memory import is_out_of_memory, record_out_of_memory
from trainer.rundir import RankResult, RunDir
from trainer.supervisor.control.results import out_of_memory_marks


@pytest.mark.parametrize(
    "fails",
    [
        lambda: torch.zeros(2, 3) @ torch.zeros(2, 3),
        lambda: torch.nn.Embedding(4, 4)(torch.tensor([9])),
        lambda: torch.nn.Linear(2, 2).load_state_dict(torch.nn.Linear(2, 3).state_dict()),
    ],
)
def test_tensors_that_do_not_go_together_recur(tmp_path: Path, fails: object) -> None:
    assert callable(fails)
    with (
        pytest.raises((RuntimeError, IndexError)) as raised,
        record_non_retryable(RunDir(tmp_path), 0),
    ):
        fails()

    message = RunDir(tmp_path).non_retryable(0).read_text()
    assert message.startswith(f"{raised.type.__name__}: ")
    assert message.endswith("change the job, or report the traceback in its log")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("dpo.loss 'x' is not known; use sigmoid or ipo"),
        ModuleNotFoundError("No module named 'tiktoken'"),
        KeyError("model.layers.0"),
        TemplateError("no template"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_code_recur(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)), record_non_retryable(RunDir(tmp_path), 1):
        raise error

    message = RunDir(tmp_path).non_retryable(1).read_text()
    assert message.startswith(f"{type(error).__name__}: {error}. It would recur on any machine")


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


ME = replace(WORLD_OF_ONE, rank=1, local_rank=1, world_size=2)
TOO_MUCH = 1 << 60  # bytes


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("NCCL error ... Cuda failure 2 'out of memory'"),
    ],
)
def test_a_gpu_without_memory_is_known_by_what_it_says(error: Exception) -> None:
    assert is_out_of_memory(error, "cuda")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a shape does not fit")])
def test_what_smaller_micro_batches_cannot_mend_is_left_to_be_an_error(error: Exception) -> None:
    assert not is_out_of_memory(error, "cuda")


def test_a_host_without_memory_is_known_by_what_it_really_raises() -> None:
    with pytest.raises(RuntimeError) as of_torch:
        torch.empty(TOO_MUCH, dtype=torch.uint8)
    with pytest.raises(MemoryError) as of_python:
        bytearray(TOO_MUCH)

    assert is_out_of_memory(of_torch.value, "cpu")
    assert is_out_of_memory(of_python.value, "cpu")
    assert not is_out_of_memory(of_torch.value, "cuda")


def test_a_rank_leaves_in_writing_what_it_had_no_memory_for_and_fails(tmp_path: Path) -> None:
    folder, spec = RunDir(tmp_path), replace(SPEC, micro_batch=4)
    with pytest.raises(RuntimeError), record_out_of_memory(folder, ME, spec, "cpu"):
        torch.empty(TOO_MUCH, dtype=torch.uint8)

    (mark,) = out_of_memory_marks(folder, range(2)).values()
    assert str(TOO_MUCH) in mark.message
    assert (mark.micro_batch, mark.gradient_checkpointing, mark.peak) == (4, False, 0)


def test_a_mark_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    folder.out_of_memory(0).parent.mkdir()
    folder.out_of_memory(0).write_text(RankResult(how="stopped", step=1).to_json())

    assert out_of_memory_marks(folder, range(2)) == {}


def test_an_error_that_is_no_lack_of_memory_leaves_no_mark(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    with (
        pytest.raises(RuntimeError, match="bad"),
        record_out_of_memory(folder, WORLD_OF_ONE, SPEC, "cpu"),
    ):
        raise RuntimeError("bad")

    assert out_of_memory_marks(folder, range(2)) == {}


def test_a_rung_changes_how_much_is_taken_at_once_and_nothing_else() -> None:
    rung = Rung(micro_batch=1, gradient_checkpointing=True)

    assert SPEC.on(rung) == replace(SPEC, micro_batch=1, gradient_checkpointing=True)
    assert SPEC.on(None) == SPEC
