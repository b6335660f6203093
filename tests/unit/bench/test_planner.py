"""The planner's benchmark: the points that it reads and rejects, its fits and its measures."""

import csv
import json
import math
from pathlib import Path

import pytest

from bench.planner import errors, memories
from bench.planner.__main__ import main
from bench.planner.points import PublishedRun, read
from bench.planner.steps import STACKS, fitted, predict
from service.domain.performance.efficiency import LLM_FOUNDRY

FOUNDRY = {
    "source": "mosaicml/llm-foundry",
    "verified": "read",
    "model": "MPT-7b",
    "params": "6658859008",
    "layers": "32",
    "hidden": "4096",
    "vocab": "50368",
    "gpus": "8",
    "gpu": "A100-80GB-SXM",
    "seq": "2048",
    "micro_batch": "6",
    "grad_accum": "2",
    "method": "pretrain-full",
    "parallel": "FSDP FULL_SHARD",
    "act_ckpt": "none",
    "tokens_s_gpu": "4600",
}
QWEN = FOUNDRY | {
    "source": "QwenLM/Qwen README",
    "model": "Qwen-7B",
    "params": "7720000000",
    "vocab": "151936",
    "gpus": "1",
    "micro_batch": "1",
    "grad_accum": "8",
    "method": "LoRA",
    "parallel": "single",
    "act_ckpt": "full",
    "tokens_s_gpu": "3100",
    "mem_gb": "24",
    "mem_scope": "sum over GPUs",
}
COLUMNS = [*QWEN, "global_batch", "tflops_gpu", "flops_basis", "hours", "dollars", "note"]


def write(folder: Path, *rows: dict[str, str]) -> Path:
    path = folder / "points.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def published_run(folder: Path, row: dict[str, str]) -> PublishedRun:
    (point,), left_out = read(write(folder, row))
    assert left_out == []
    return point


def test_a_row_becomes_the_question_that_the_planner_is_asked(tmp_path: Path) -> None:
    point = published_run(tmp_path, FOUNDRY)

    assert point.seconds == pytest.approx(2 * 6 * 2048 / 4600)
    assert (point.work.zero_stage, point.work.accumulation, point.nodes) == (3, 2, 1)
    assert point.work.arch.tied
    assert abs(math.expm1(errors.by([point], LLM_FOUNDRY).logs[0])) < 0.1


def test_memory_is_asked_for_one_gpu_of_those_that_were_summed(tmp_path: Path) -> None:
    sharded = {"method": "LoRA ZeRO-3", "parallel": "DeepSpeed ZeRO-3", "gpus": "4"}
    point = published_run(tmp_path, QWEN | sharded | {"mem_gb": "100"})

    assert point.memory == 25e9
    assert point.work.zero_stage == 3
    assert memories.predict(point).states < memories.predict(published_run(tmp_path, QWEN)).states


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"verified": "seed claim"}, "a claim, not a measurement"),
        ({"mem_scope": "total, estimated not measured"}, "estimated by its authors"),
        ({"method": "RLHF-PPO step3"}, "no plain training step"),
        ({"gpu": "V100-32GB"}, "no training was measured on such GPUs"),
        ({"gpu": ""}, "not named"),
        ({"layers": ""}, "no layers is given"),
        ({"hidden": "wide"}, "no number"),
        ({"gpus": "0"}, "no number above zero"),
        ({"act_ckpt": ""}, "recomputed"),
        ({"parallel": ""}, "parallelized"),
        ({"params": "1000000"}, "contradict each other"),
        ({"micro_batch": "", "global_batch": ""}, "no micro-batch"),
    ],
)
def test_a_row_that_is_no_point_says_why(
    change: dict[str, str], reason: str, tmp_path: Path
) -> None:
    points, left_out = read(write(tmp_path, FOUNDRY | change))

    assert points == []
    assert reason in left_out[0]


def test_flops_are_turned_into_time_by_the_formula_that_is_named(tmp_path: Path) -> None:
    row = FOUNDRY | {"tokens_s_gpu": "", "tflops_gpu": "150", "flops_basis": "HFU(96Bslh^2)"}
    flops = 96 * 32 * 4096**2 * (1 + 2048 / (6 * 4096) + 50368 / (16 * 32 * 4096))

    assert published_run(tmp_path, row).seconds == pytest.approx(2 * 6 * 2048 * flops / 150e12)


def test_what_waits_for_the_network_is_refused_and_counted(tmp_path: Path) -> None:
    bound = {"source": "DeepSpeed", "micro_batch": "1", "grad_accum": "1", "gpus": "64"}
    rows, _ = read(write(tmp_path, FOUNDRY, FOUNDRY | bound))

    promised, refused = errors.split_promised(rows)

    assert [p.source for p in promised] == ["mosaicml/llm-foundry"]
    assert [p.source for p in refused] == ["DeepSpeed"]


def test_a_stack_fitted_to_what_its_own_coefficients_say_says_the_same(tmp_path: Path) -> None:
    shapes = [("2048", "6"), ("512", "24"), ("8192", "2"), ("2048", "1")]
    rows = [FOUNDRY | {"seq": seq, "micro_batch": rows} for seq, rows in shapes]
    points = []
    for row in rows:
        point = published_run(tmp_path, row)
        tokens = point.work.accumulation * point.work.micro_tokens
        tokens_per_second = tokens / predict(point, STACKS["foundry"]).seconds
        points.append(published_run(tmp_path, row | {"tokens_s_gpu": str(tokens_per_second)}))

    assert (errors.by(points, fitted("foundry", points)).mape or 0.0) < 2


def test_two_measured_points_teach_what_a_machine_is_slower_by(tmp_path: Path) -> None:
    """Calibrate with three runs that each took 1.5 times the predicted time."""
    points = []
    for seq in ("1024", "2048", "4096"):
        point = published_run(tmp_path, FOUNDRY | {"seq": seq})
        tokens = point.work.accumulation * point.work.micro_tokens
        slower = tokens / (1.5 * predict(point, LLM_FOUNDRY).seconds)
        points.append(published_run(tmp_path, FOUNDRY | {"seq": seq, "tokens_s_gpu": str(slower)}))

    calibrated = errors.after_calibration(points)

    assert errors.stored(points).mape == pytest.approx(100 / 3)
    assert calibrated.ours.count == calibrated.constant.count == 3
    assert (calibrated.ours.mape or 99.0) < 3
    assert calibrated.coverage == 100


MPT_13B = {"model": "MPT-13b", "params": "12853954560", "layers": "40", "hidden": "5120"}
MPT_70B = {"model": "MPT-70b", "params": "64862437376", "layers": "80", "hidden": "8192"}
H100, A100 = {"gpu": "H100-80GB-SXM"}, {"gpu": "A100-80GB-SXM"}
BOUND = [  # the runs of few machines that wait longest for the network
    MPT_13B | H100 | {"gpus": "16", "micro_batch": "2", "grad_accum": "1", "tokens_s_gpu": "4767"},
    MPT_13B | H100 | {"gpus": "32", "micro_batch": "2", "grad_accum": "1", "tokens_s_gpu": "4811"},
    MPT_70B
    | H100
    | {"gpus": "32", "micro_batch": "2", "grad_accum": "16", "tokens_s_gpu": "882"}
    | {"act_ckpt": "full"},
    MPT_70B
    | A100
    | {"gpus": "32", "micro_batch": "2", "grad_accum": "16", "tokens_s_gpu": "373"}
    | {"act_ckpt": "full"},
]


def test_the_network_of_few_machines_is_asked_of_gpus_that_it_was_not_fitted_to(
    tmp_path: Path,
) -> None:
    rows, _ = read(write(tmp_path, *(FOUNDRY | run for run in BOUND)))

    held_out = errors.few_nodes_held_out(rows)

    assert min(errors.few_nodes_as_many(rows).logs) > math.log(2.0)
    assert held_out.count == len(BOUND)
    assert (held_out.mape or 100) < 25


def test_its_json_has_the_measures_that_are_promised(tmp_path: Path) -> None:
    target, points = tmp_path / "out.json", write(tmp_path, FOUNDRY, QWEN)

    assert main(["--points", str(points), "--evictions", "20", "--json", str(target)]) == 0

    report = json.loads(target.read_text())
    values = {m["name"]: m["value"] for m in report["measures"]}
    assert report["bench"] == "planner"
    assert values["memory_under"] == 0
    assert values["memory_mape"] < 8
    assert values["step_mape_same_stack"] < 15
    assert values["step_mape_cold"] is None, "no program in it is unknown"
    assert {"step_mape_calibrated", "step_mape_few_nodes"} <= values.keys()
    assert "goodput_to_closed_form_min" in values


def test_a_file_without_points_cannot_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = write(tmp_path, FOUNDRY | {"gpu": "TPU"})

    assert main(["--points", str(empty)]) == 2
    assert "has no usable point" in capsys.readouterr().err
