"""No job succeeds with files that are not the model it trained: a fresh process finds out.

Real torchrun worlds on CPU train and export; real processes verify.
"""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.system.exactness import worlds
from tests.system.exactness.worlds import LORA, Outcome, kill_world, prepare, read_saves, run_world
from tests.system.training import planted
from tests.system.training.planted import (
    Change,
    copy_trainer,
    edit_json,
    edit_weights,
    verify_folder,
)
from trainer.contract import NOT_THE_MODEL, RunSpec
from trainer.export.report import REPORT, TrainingReport
from trainer.verify.result import MISMATCH, NOT_VERIFIED, OFF, VERIFIED, Verification

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Bench:
    """Where worlds are run, and with what."""

    root: Path
    inputs: Path
    spec: RunSpec

    def run(self, name: str, **members: Any) -> Outcome:  # noqa: ANN401
        """Run a training of one process to the end."""
        spec = replace(self.spec, **members)
        return run_world(prepare(self.root / name, spec, self.inputs, world=1), world=1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a bench with the tiny model and a learning rate at which it learns much."""
    root = tmp_path_factory.mktemp("verified")
    inputs = worlds.build_inputs(root / "inputs")
    return Bench(root, inputs, replace(worlds.make_spec(inputs), verify=True))


@pytest.fixture(scope="module")
def full(bench: Bench) -> Outcome:
    """Return the outcome of a full fine-tune that exports an average of its weights."""
    return bench.run("full", ema_decay=0.9)


@pytest.fixture(scope="module")
def adapted(bench: Bench) -> Outcome:
    """Return the outcome of a run with adapters."""
    return bench.run("adapted", lora=LORA)


def exported(outcome: Outcome) -> Path:
    """Return the folder of the final model."""
    (final,) = (save for save in outcome.saves if save.kind == "final")
    return outcome.rundir.save_folder(final.path)


def verification(outcome: Outcome) -> Verification:
    """Return the verification in the training report."""
    report = TrainingReport.from_json((exported(outcome) / REPORT).read_bytes()).verification
    assert report is not None
    return report


@pytest.fixture
def copy(full: Outcome, tmp_path: Path) -> Path:
    """Copy the exported folder and return the copy."""
    return Path(shutil.copytree(exported(full), tmp_path / "model"))


@pytest.mark.parametrize("name", ["full", "adapted"])
def test_the_report_compares_files_with_memory(name: str, request: pytest.FixtureRequest) -> None:
    report = verification(request.getfixturevalue(name))

    assert report.status == VERIFIED
    assert report.loss == pytest.approx(report.trainer_loss, abs=0.01)
    assert report.base_loss is not None
    assert report.trainer_loss is not None
    assert report.base_loss > report.trainer_loss + 0.1  # it has learnt
    assert (report.file, report.sequences) == ("valid.jsonl", 9)
    assert report.comparisons[0].difference == 0.0  # the same sums of the same weights


def test_the_model_card_says_what_was_found(full: Outcome) -> None:
    text = (exported(full) / "README.md").read_text()

    assert "A new process loaded these files with transformers" in text


def test_files_as_they_were_exported_are_verified_again(full: Outcome, copy: Path) -> None:
    planted.shard(copy)

    assert verify_folder(full.rundir, copy).status == VERIFIED


def _each(faults: Iterable[str]) -> list[Any]:
    return [pytest.param(fault, id=fault) for fault in faults]


def _weights(change: Callable[[planted.Tensors], None]) -> Callable[[Path], None]:
    return lambda folder: edit_weights(folder, change)


def _cut_off(folder: Path) -> None:
    weights = folder / planted.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1000])


def _other_template(folder: Path) -> None:
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("<|' +", "<|'+ ' ' +"))


WRONG_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a square transposed": (_weights(planted.transpose_square), "single values differ"),
    "layers swapped": (_weights(planted.swap_layers), "single values differ"),
    "embeddings swapped": (_weights(planted.swap_embeddings), "single values differ"),
    "a tensor lost": (_weights(planted.drop_tensor), "1 missing keys"),
    "a tensor renamed": (_weights(planted.rename_tensor), "missing keys"),
    "no number": (_weights(planted.spoil_one), "not a number"),
    "32 bits": (_weights(planted.widen), "is saved as F32, the trained model has BF16"),
    "the other 16 bits": (_weights(planted.narrow), "is saved as F16, the trained model has BF16"),
    "a shard lost": (
        lambda f: planted.shard(f, drop=True),
        "is in no file, the index says model-00002-of-00002",
    ),
    "a file cut off": (_cut_off, "model.safetensors cannot be read"),
    "another configuration": (
        lambda f: edit_json(f / "config.json", lambda config: config.update(rms_norm_eps=0.5)),
        "single values differ",
    ),
    "two tokens swapped": (
        lambda f: edit_json(f / "tokenizer.json", planted.swap_tokens),
        "2 tokens have another id",
    ),
    "a merge lost": (
        lambda f: edit_json(f / "tokenizer.json", planted.drop_merge),
        "its merges, normalizer or pre-tokenizer differ",
    ),
    "another chat template": (_other_template, "its chat template differs"),
    "another end": (
        lambda f: edit_json(f / "tokenizer_config.json", lambda c: c.update(eos_token="<|pad|>")),
        "its eos_token is '<|pad|>', in training it was '<|end|>'",
    ),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "the tokenizer cannot be loaded"),
}


@pytest.mark.parametrize("fault", _each(WRONG_FILES))
def test_files_that_are_not_the_trained_model_are_caught(
    full: Outcome, copy: Path, fault: str
) -> None:
    plant, reason = WRONG_FILES[fault]
    plant(copy)

    report = verify_folder(full.rundir, copy)

    assert (report.status, reason in report.reason) == (MISMATCH, True), report.reason


def test_a_broken_adapter_beside_a_right_model_is_caught(adapted: Outcome, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported(adapted), tmp_path / "model"))
    edit_json(folder / "adapter" / "adapter_config.json", lambda c: c.update(lora_alpha=16))

    report = verify_folder(adapted.rundir, folder)

    assert (report.status, "the adapter has a" in report.reason) == (MISMATCH, True), report.reason


def test_a_model_without_room_in_memory_is_not_verified(full: Outcome, copy: Path) -> None:
    report = verify_folder(full.rundir, copy, host_memory=1_000_000)

    assert report.status == NOT_VERIFIED
    assert "GB of memory in a fresh process; free are 0.0 GB of the node's" in report.reason


def test_a_verification_that_is_switched_off_is_told_as_off(bench: Bench) -> None:
    assert verification(bench.run("off", verify=False, total_steps=1)).status == OFF


WRONG_EXPORTS: dict[str, tuple[dict[str, Any], Change]] = {
    "adapters merged with a wrong scale": (
        {"lora": LORA},
        Change(
            file="trainer/export/hf_folder.py",
            was="(weight.float() + scale * (b @ a))",
            becomes="(weight.float() + b @ a / scale)",
        ),
    ),
    "an average that is not adopted": (
        {"ema_decay": 0.9},
        Change(
            file="trainer/export/finalize.py",
            was="    exported = export(engine",
            becomes="    average.exchange(engine)\n    exported = export(engine",
        ),
    ),
    "weights rounded to 8 bits": (
        {},
        Change(
            file="trainer/export/hf_folder.py",
            was='parameter.detach().to("cpu", copy=True)',
            becomes='parameter.detach().to("cpu", torch.float8_e4m3fn).to(parameter.dtype)',
        ),
    ),
}


@pytest.mark.parametrize("fault", _each(WRONG_EXPORTS))
def test_a_trainer_that_exports_another_model_fails_and_keeps_the_trained_weights(
    bench: Bench, tmp_path: Path, fault: str
) -> None:
    members, change = WRONG_EXPORTS[fault]
    rundir = prepare(tmp_path / "run", replace(bench.spec, **members), bench.inputs)
    source = copy_trainer(tmp_path / "source", change)
    process = worlds.start_torchrun(rundir, cwd=source)
    process.communicate(timeout=worlds.DEADLINE)

    texts = [rundir.non_retryable(rank).read_text() for rank in range(2)]
    assert texts[0] == texts[1]
    assert texts[0].startswith(f"{NOT_THE_MODEL}: the exported files are not the model")
    assert "single values differ by" in texts[0]
    assert not any(rundir.result(rank).exists() for rank in range(2))
    (save,) = read_saves(rundir)
    assert (save.kind, save.step) == ("stop", 12)


def test_a_kill_during_the_verification_leaves_nothing_to_upload_and_a_resume_does_it_again(
    bench: Bench, tmp_path: Path
) -> None:
    spec = replace(bench.spec, checkpoint_seconds=0.01)
    rundir = prepare(tmp_path / "killed", spec, bench.inputs)
    process = worlds.start_world(rundir)
    worlds.wait_until((rundir.verification / "expected.json").exists, process)
    kill_world(process)

    interrupted = Outcome("killed", 12, worlds.read_metrics(rundir), read_saves(rundir), rundir)
    assert "final" not in {save.kind for save in interrupted.saves}

    resumed = run_world(prepare(tmp_path / "resumed", bench.spec, bench.inputs, resume=interrupted))
    assert verification(resumed).status == VERIFIED
