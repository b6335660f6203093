"""Memory that runs out is told from other errors, and never swallowed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.trainer.process.trainer_spec import ME as WORLD_OF_ONE
from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import Rung
from trainer.process.out_of_memory import is_out_of_memory, record_out_of_memory
from trainer.rundir import RankResult, RunDir
from trainer.supervisor.control.results import out_of_memory_marks

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


def test_a_rung_changes_how_much_is_taken_at_once_and_nothing_else() -> None:
    rung = Rung(micro_batch=1, gradient_checkpointing=True)

    assert SPEC.on(rung) == replace(SPEC, micro_batch=1, gradient_checkpointing=True)
    assert SPEC.on(None) == SPEC
