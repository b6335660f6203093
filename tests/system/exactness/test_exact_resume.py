"""A run that was stopped and resumed is the run that never was.

Every test starts real torchrun worlds on CPU; `matrix.py` has the whole matrices.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.system.exactness import matrix, worlds
from tests.system.exactness.pairings import OFF_POLICY
from tests.system.exactness.savers import QLORA
from tests.system.exactness.worlds import (
    LORA,
    Outcome,
    by_grades,
    by_preferences,
    prepare,
    run_world,
    without_dropout,
)
from trainer.checkpoint.checksum import describe_file
from trainer.contract import RunSpec
from trainer.export.report import REPORT, TrainingReport
from trainer.rundir import RankSave, RunDir

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CASES = (  # `make exactness` has all
    *("dpo-full-zero3-bf16", "ranked-full-zero2-bf16", "curriculum-full-zero3-bf16"),
    *("killed-ppo-lora-zero2-bf16", "killed-sft-qlora-zero2-bf16", "forgets-randomness"),
    *("rung-full-zero2-fp32", "rung-grpo-zero2-fp32", "chain-full-zero3-fp32"),
)


@dataclass(frozen=True)
class Bench:
    """Where worlds are run, and with what."""

    root: Path
    inputs: Path
    spec: RunSpec


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a bench with the tiny model and its data."""
    root = tmp_path_factory.mktemp("exact")
    inputs = worlds.build_inputs(root / "inputs")
    return Bench(root, inputs, worlds.make_spec(inputs))


@pytest.fixture(scope="module")
def uninterrupted(bench: Bench) -> Outcome:
    """Full bf16 ZeRO-2, uninterrupted, started by torchrun: the resumes that follow are forked."""
    return run_world(prepare(bench.root / "whole", bench.spec, bench.inputs), real=True)


@pytest.fixture(scope="module")
def stopped(bench: Bench) -> Outcome:
    """Return the outcome of the same run, stopped early in the first epoch."""
    return run_world(prepare(bench.root / "stopped", bench.spec, bench.inputs), stop_at=2)


def test_a_run_stopped_twice_in_an_epoch_ends_bit_for_bit_like_one_that_never_was(
    bench: Bench, uninterrupted: Outcome, stopped: Outcome
) -> None:
    second = prepare(bench.root / "second", bench.spec, bench.inputs, resume=stopped)
    resumed = run_world(second, stop_at=stopped.step + 1, by_signal=True)
    third = prepare(bench.root / "third", bench.spec, bench.inputs, resume=resumed)
    last = run_world(third)

    assert [stopped.how, resumed.how, last.how] == ["stopped", "stopped", "finished"]
    assert stopped.step < resumed.step < last.step == 12
    assert stopped.losses | resumed.losses | last.losses == uninterrupted.losses
    assert last.metrics[12].valid_loss == uninterrupted.metrics[12].valid_loss is not None
    assert last.parameters_sha256 == uninterrupted.parameters_sha256 != ""
    assert uninterrupted.losses[12] < uninterrupted.losses[1] - 1.5
    report = report_of(uninterrupted)
    assert report_of(last) == report
    assert (report.steps, report.samples) == (12, 96)
    assert report.tokens == sum(m.tokens for m in uninterrupted.metrics.values())
    assert report.validation is not None
    assert report.validation.after == uninterrupted.metrics[12].valid_loss
    assert (report.validation.before or 0.0) > (report.validation.after or 0.0) + 1.0
    assert report.parameters_sha256 == uninterrupted.parameters_sha256


@pytest.mark.long
def test_a_run_that_saves_often_is_the_same_run(bench: Bench, uninterrupted: Outcome) -> None:
    spec = replace(bench.spec, checkpoint_seconds=0.01)
    often = run_world(prepare(bench.root / "often", spec, bench.inputs))

    assert [s.kind for s in uninterrupted.saves] == ["final"]
    assert {s.kind for s in often.saves} == {"periodic", "final"}
    assert often.losses == uninterrupted.losses
    assert often.metrics[12].valid_loss == uninterrupted.metrics[12].valid_loss
    assert often.parameters_sha256 == uninterrupted.parameters_sha256 != ""


@pytest.mark.long  # a minute and more; `make exactness` has it among its pairs as well
def test_adapters_under_zero_3_resume_exactly_and_are_exported_merged(bench: Bench) -> None:
    """By preferences, with the adapters switched off for the reference."""
    spec = by_preferences(bench.inputs)
    spec = replace(spec, lora=LORA, zero_stage=3, gradient_checkpointing=True)
    result = matrix.compare(bench.root / "lora", spec, bench.inputs, stops=(3,))

    assert result["losses_equal"]
    assert result["parameters_equal"]
    metrics = worlds.read_metrics(RunDir(bench.root / "lora" / "whole"))
    assert (metrics[12].margin or 0.0) > (metrics[1].margin or 0.0) + 0.05
    model = next((bench.root / "lora" / "whole" / "outbox").iterdir())
    names = {file.name for file in model.iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json", "adapter"}
    assert (model / "adapter" / "adapter_model.safetensors").exists()
    assert base_weights_moved(bench.inputs / "models" / "tiny", model)


@pytest.mark.long
def test_qlora_with_a_chunked_loss_and_offload_resumes_exactly(bench: Bench) -> None:
    spec = replace(bench.spec, lora=QLORA, loss_chunk=16, offload="optimizer")
    spec = replace(spec, total_steps=4, eval_steps=2)  # evaluated in one world, not in the other
    result = matrix.compare(bench.root / "savings", spec, bench.inputs, stops=(3,))

    assert result["losses_equal"]
    assert result["parameters_equal"]


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_case_of_each_matrix_holds(bench: Bench, name: str) -> None:
    result = dict(matrix.cases(bench.root / name))[name]()

    assert [check for check, holds in result.items() if holds is False] == [], result


@pytest.mark.long  # `make exactness` has it as well
def test_answers_that_wait_or_are_used_again_survive_a_resume(bench: Bench) -> None:
    """PPO, stopped between two steps on the answers of one rollout, with adapters."""
    spec = by_grades(bench.inputs, "ppo", **OFF_POLICY)
    spec = replace(spec, lora=LORA, total_steps=6)
    result = matrix.compare(bench.root / "ppo", spec, bench.inputs, stops=(3,))

    assert result["losses_equal"]
    assert result["parameters_equal"]
    saved = (bench.root / "ppo" / "part-0" / "outbox").glob("*step-00000003*/*.answers")
    assert len(list(saved)) == 2
    metrics = worlds.read_metrics(RunDir(bench.root / "ppo" / "whole"))
    assert [step for step, m in metrics.items() if m.reward is not None] == [1, 3, 5]
    assert metrics[6].valid_loss is not None


@pytest.mark.long  # `make test` changes worlds in test_elastic_jobs, without weights
def test_another_world_and_stage_goes_on_within_rounding(bench: Bench) -> None:
    inputs = without_dropout(bench.inputs, bench.root / "calm")
    spec = replace(bench.spec, precision="fp32", zero_stage=0)
    straight = run_world(prepare(bench.root / "two", spec, inputs))
    halted = run_world(prepare(bench.root / "halted", spec, inputs), stop_at=3)

    alone = replace(spec, zero_stage=2)
    rundir = prepare(bench.root / "one", alone, inputs, world=1, resume=halted)
    resumed = run_world(rundir, world=1)

    assert resumed.step == straight.step
    for step, loss in resumed.losses.items():
        assert loss == pytest.approx(straight.losses[step], abs=2e-5)


def test_a_world_killed_while_it_saves_leaves_only_whole_saves_or_none(bench: Bench) -> None:
    spec = replace(bench.spec, checkpoint_seconds=0.0)
    rundir = prepare(bench.root / "killed", spec, bench.inputs)
    process = worlds.start_world(rundir)
    worlds.wait_until(lambda: any(rundir.outbox.glob("*/rank-*.safetensors")), process)
    worlds.kill_world(process)

    assert not rundir.result(0).exists()
    for folder in rundir.outbox.iterdir():
        for record in records(folder):
            described = [describe_file(folder / file.name, file.name) for file in record.files]
            files = [replace(f, sha256="") for f in described]
            assert files == [replace(f, block_size=0, blocks=(), sha256="") for f in record.files]


@pytest.mark.long
def test_a_checkpoint_of_the_last_step_goes_straight_to_export(
    bench: Bench, stopped: Outcome
) -> None:
    spec = replace(bench.spec, total_steps=stopped.step)
    rundir = prepare(bench.root / "export", spec, bench.inputs, resume=stopped)

    exported = run_world(rundir)

    assert (exported.how, exported.step) == ("finished", stopped.step)
    assert list(exported.metrics) == [stopped.step]
    assert exported.metrics[stopped.step].valid_loss is not None
    assert exported.parameters_sha256 != ""


def base_weights_moved(base: Path, model: Path) -> bool:
    """Whether the exported model loads by itself and its linear layers are not the base's."""
    from transformers.models.llama import LlamaForCausalLM  # noqa: PLC0415 - 3 seconds

    name = "model.layers.0.mlp.up_proj.weight"
    old, new = (LlamaForCausalLM.from_pretrained(f).state_dict()[name] for f in (base, model))
    return bool((old.float() - new.float()).abs().max() > 1e-3)


def report_of(outcome: Outcome) -> TrainingReport:
    """Return the report that comes with the exported model."""
    (model,) = outcome.rundir.outbox.iterdir()
    return TrainingReport.from_json((model / REPORT).read_bytes())


def records(folder: Path) -> Iterator[RankSave]:
    """Yield the ranks' records in an outbox folder."""
    for path in folder.glob("rank-?????.json"):
        yield RankSave.from_json(path.read_bytes())
