"""A finished model with cheaper weights: nearly as good, the same once it is loaded again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.unit.trainer.process.trainer_spec import FILE, ME, SPEC
from trainer.compress import INT8, NF4, SPARSE, CompressionError, compress_model
from trainer.export.report import REPORT, TrainingReport, make_report, write_report
from trainer.rundir import RunDir
from trainer.sample_data.tiny_chats import write_samples
from trainer.state import TrainingState
from trainer.tiny import build

pytestmark = pytest.mark.filterwarnings("ignore:MatMul8bitLt")  # bitsandbytes', of its precision


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the tiny model as if a job had exported it, with rows beside it."""
    root = tmp_path_factory.mktemp("bits")
    write_samples(root / "run" / "inputs" / FILE.path, rows=6, seed=1)
    build(root / "model")
    (root / "model" / "README.md").write_text("# A model\n\n## Limits\n\n- One.\n")
    report = make_report(
        root / "model", RunDir(root / "run"), SPEC, ME, TrainingState(), 1, "a" * 64
    )
    write_report(report, root / "model")
    return root / "model"


def rows(model: Path) -> Path:
    return model.parent / "run" / "inputs" / FILE.path


@pytest.mark.parametrize("kind", [INT8, NF4])
def test_a_model_in_fewer_bits_is_smaller_and_nearly_as_good(
    model: Path, tmp_path: Path, kind: str
) -> None:
    compression = compress_model(model, tmp_path / "small", kind, rows(model), rows=4)

    assert (compression.to, compression.rows) == (kind, 4)
    assert compression.loss_before is not None
    assert compression.loss_after != compression.loss_before
    assert compression.loss_after == pytest.approx(compression.loss_before, abs=0.05)
    report = TrainingReport.from_json((tmp_path / "small" / REPORT).read_bytes())
    assert report.quantized == compression
    assert compression.bytes < 0.8 * report.model.bytes
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "bitsandbytes"
    names = {file.name for file in (tmp_path / "small").iterdir()}
    assert names >= {"tokenizer.json", "tokenizer_config.json"}
    assert f"weights in {kind}" in (tmp_path / "small" / "README.md").read_text()
    assert [f.name for f in tmp_path.iterdir()] == ["small"]


def test_two_of_every_four_weights_in_a_row_become_zero_and_they_are_the_smallest(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compression = compress_model(model, tmp_path / "sparse", SPARSE, rows(model), rows=4)
    output = capsys.readouterr()
    before, after = (load_file(f / "model.safetensors") for f in (model, tmp_path / "sparse"))
    pruned = [name for name, weight in after.items() if not torch.equal(weight, before[name])]

    assert compression.loss_before is not None
    assert compression.loss_after is not None
    assert compression.loss_before != compression.loss_after < compression.loss_before + 0.5
    assert len(pruned) == sum("_proj." in name for name in before)
    for name in pruned:
        compressed, original = (file[name].reshape(-1, 4).float().abs() for file in (after, before))
        assert ((compressed == 0).sum(1) == 2).all()
        assert torch.equal(compressed.sum(1), original.topk(2, dim=1).values.sum(1))
    assert "half are zero (2:4)" in (tmp_path / "sparse" / "README.md").read_text()
    assert output.out == ""
    assert output.err.count("measuring rows: 100%") >= 2  # for the loss before, and after


def test_a_folder_that_is_there_or_that_no_job_made_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(CompressionError, match="is there already"):
        compress_model(model, tmp_path, "int8")
    with pytest.raises(CompressionError, match=r"has no report\.json"):
        compress_model(tmp_path, tmp_path / "small", "int8")


def test_chats_measure_no_model_of_another_method(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reward"
    folder.mkdir()
    report = TrainingReport.from_json((model / REPORT).read_bytes())
    write_report(replace(report, method="reward"), folder)

    with pytest.raises(CompressionError, match="a reward model has no loss on chats"):
        compress_model(folder, tmp_path / "small", "int8", rows(model))
