"""What only a GPU shows: `make gpu`, on a machine that has one.

`python -m tests.system.exactness` runs its whole matrix there.
"""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.system.exactness import matrix, worlds
from trainer.contract import ExpectedHardware
from trainer.rundir import OutOfMemoryMark
from trainer.supervisor.machine.gpu_report import faults_of_gpus, loads_of_gpus

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]
LEFT = 2 * 2**30  # bytes of each GPU; CUDA itself and the tiny model take a quarter of it
LARGE = 4096  # rows at once, whose logits alone do not go into that


def test_a_run_stopped_twice_on_gpus_ends_bit_for_bit_alike(tmp_path: Path) -> None:
    chosen = dict(matrix.cases(tmp_path))

    for name in ("sft-full-zero2-bf16", "sft-qlora-zero2-bf16", "packed-lora-zero3-bf16"):
        result = chosen[name]()
        assert result["losses_equal"], name
        assert result["parameters_equal"], name


def test_memory_that_runs_out_on_a_gpu_is_told_with_what_it_held(tmp_path: Path) -> None:
    import torch  # noqa: PLC0415 - seconds, and collecting this file needs none of it

    inputs = worlds.build_inputs(tmp_path / "inputs")
    spec = replace(worlds.make_spec(inputs), micro_batch=LARGE, total_steps=1)
    spec = replace(spec, global_batch=LARGE * worlds.RANKS)
    ballast = [
        torch.empty(torch.cuda.mem_get_info(gpu)[0] - LEFT, dtype=torch.uint8, device=gpu)
        for gpu in range(worlds.RANKS)
    ]
    rundir = worlds.prepare(tmp_path / "run", spec, inputs)
    output, _ = worlds.start_torchrun(rundir).communicate(timeout=worlds.DEADLINE)
    del ballast

    assert rundir.out_of_memory(0).exists(), output
    mark = OutOfMemoryMark.from_json(rundir.out_of_memory(0).read_bytes())
    assert mark.micro_batch == LARGE
    assert 0 < mark.peak < LEFT
    assert "out of memory" in mark.message


def test_gpus_that_are_whole_show_no_fault_and_how_busy_they_are() -> None:
    import torch  # noqa: PLC0415 - as above

    process = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, check=True)
    memory = torch.cuda.get_device_properties(0).total_memory // 2**30
    expected = ExpectedHardware(
        gpus=worlds.RANKS, gpu_memory_gib=memory, nvlink_gbytes=0, infiniband_gbps=0
    )

    assert faults_of_gpus(process.stdout, expected) == []
    assert len(loads_of_gpus(process.stdout)) == worlds.RANKS
