"""A checkpoint becomes another program's folder whole or not at all; what is wrong is said."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from deepspeed.runtime.lr_schedules import WarmupLR
from safetensors.torch import load_file

from tests.nodes.forged import forged
from tests.system.exactness.worlds import place_checkpoint
from tests.unit.trainer.checkpoint.test_saver import PATH, save
from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.checkpoint.checksum import describe_file
from trainer.checkpoint.index import RankIndex, index_name
from trainer.contract import HEAD, MANIFEST, RUN_SPEC, Committed, Head, Manifest
from trainer.convert import shards, universal
from trainer.convert.__main__ import main
from trainer.convert.whole import FullParameters
from trainer.convert.whole import parameter_groups as converted_groups
from trainer.engine.deepspeed_engine import parameter_groups
from trainer.rundir import RunDir, tensors_name


@dataclass(frozen=True)
class Container:
    """A copy of a job's container with one checkpoint, of a 5 x 3 layer by two ranks."""

    root: Path

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's folder."""
        return self.root / PATH

    def seal(self) -> None:
        """Have manifest and HEAD say what is there."""
        digest = hashlib.sha256((self.root / RUN_SPEC).read_bytes()).hexdigest()
        for file in self.checkpoint.glob("*.index.json"):
            index = RankIndex.from_json(file.read_bytes())
            file.write_text(replace(index, run_spec_sha256=digest).to_json())
        manifest = Manifest.from_json((self.checkpoint / MANIFEST).read_bytes())
        described = [(f, describe_file(self.checkpoint / f.name, f.name)) for f in manifest.files]
        files = tuple(
            replace(f, size=d.size, crc64nvme=d.crc64nvme, sha256=d.sha256) for f, d in described
        )
        manifest = replace(manifest, files=files, run_spec_sha256=digest)
        (self.checkpoint / MANIFEST).write_text(manifest.to_json())
        entry = Committed(
            path=PATH,
            step=manifest.step,
            consumed_samples=manifest.consumed_samples,
            world_size=manifest.world_size,
            generation=manifest.generation,
            kind=manifest.kind,
            size=manifest.size,
            manifest_sha256=hashlib.sha256(manifest.to_json().encode()).hexdigest(),
            committed_at=0.0,
        )
        (self.root / HEAD).write_text(Head(generation=1, checkpoints=(entry,)).to_json())

    def whole(self) -> FullParameters:
        """Return the parameters of the checkpoint that is converted."""
        manifest = Manifest.from_json((self.checkpoint / MANIFEST).read_bytes())
        return FullParameters(self.checkpoint, manifest)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    """One that is in order."""
    rundir = RunDir(tmp_path / "run")
    save(rundir)
    made = Container(tmp_path / "container")
    place_checkpoint(rundir.save_folder(PATH), made.checkpoint)
    (made.root / RUN_SPEC).write_text(SPEC.to_json())
    made.seal()
    return made


def refused(capsys: pytest.CaptureFixture[str], target: Path, *arguments: str) -> str:
    """Why it was not converted; nothing must be left."""
    with pytest.raises(SystemExit) as ended:
        main([*arguments, str(target)])
    assert list(target.parent.iterdir()) == []
    capsys.readouterr()
    return str(ended.value.code)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where nothing is yet."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "target"


def test_every_rank_adds_its_part(container: Container) -> None:
    whole = container.whole()

    parts = [load_file(container.checkpoint / tensors_name(rank)) for rank in (0, 1)]
    assert whole.shapes == {"weight": (5, 3), "bias": (5,)}
    for state in ("master", "exp_avg", "exp_avg_sq"):
        joined = torch.cat([part[f"weight|{state}"] for part in parts])
        assert torch.equal(whole.tensor("weight", state).view(-1), joined)


def test_a_part_that_is_nowhere_is_told_by_its_parameters_name(container: Container) -> None:
    path = container.checkpoint / index_name(1)
    index = RankIndex.from_json(path.read_bytes())
    path.write_text(replace(index, fragments=index.fragments[1:]).to_json())

    with pytest.raises(ValueError, match="weight: elements 7 to 15 are in no file"):
        container.whole().tensor("weight", "master")


def test_groups_are_those_that_the_trainer_makes(container: Container) -> None:
    module = torch.nn.Linear(3, 5)
    names = {id(p): name for name, p in module.named_parameters()}
    ours = converted_groups(container.whole(), SPEC)
    theirs = parameter_groups(module, SPEC.weight_decay)

    assert [list(g.names) for g in ours] == [[names[id(p)] for p in g["params"]] for g in theirs]
    assert [g.numbers["weight_decay"] for g in ours] == [g["weight_decay"] for g in theirs]


def test_a_deepspeed_scheduler_goes_on_where_it_would_be(
    container: Container, target: Path
) -> None:
    universal.write_universal(container.whole(), SPEC, target)
    told = torch.load(target / "global_step3" / universal.MODEL_STATES[0], weights_only=True)

    scheduler = WarmupLR(torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]))
    for _ in range(3):
        scheduler.step()
    assert told["lr_scheduler"] == scheduler.state_dict()


@pytest.mark.parametrize("limit", [1, 50, 10**9])
def test_a_model_is_split_into_files_that_are_small_enough(tmp_path: Path, limit: int) -> None:
    tensors = {"a": torch.rand(2, 3), "b": torch.rand(()), "c": torch.rand(7), "d": torch.rand(0)}
    shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    shards.write_model(tmp_path, shapes, torch.bfloat16, tensors.__getitem__, limit)

    files = [load_file(f) for f in tmp_path.glob("*.safetensors")]
    read = {name: tensor for file in files for name, tensor in file.items()}
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[n], t.to(torch.bfloat16)) for n, t in tensors.items())
    assert len(files) == {1: 4, 50: 1, 10**9: 1}[limit]


class TestRefusals:
    def test_a_flipped_bit(
        self, container: Container, target: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = container.checkpoint / tensors_name(0)
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)

        said = refused(capsys, target, "--to", "dcp", str(container.root))
        assert f"{tensors_name(0)} is damaged" in said

    def test_a_forged_file_of_the_same_size_and_crc(
        self, container: Container, target: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = container.checkpoint / tensors_name(0)
        file.write_bytes(forged(file.read_bytes(), at=file.stat().st_size - 20))

        said = refused(capsys, target, "--to", "dcp", str(container.root))
        assert f"{tensors_name(0)} is damaged: sha256" in said

    def test_a_file_that_is_missing(
        self, container: Container, target: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (container.checkpoint / tensors_name(1)).unlink()

        said = refused(capsys, target, "--to", "universal", str(container.root))
        assert f"{tensors_name(1)} is missing" in said

    def test_a_manifest_that_head_does_not_name(
        self, container: Container, target: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        manifest = container.checkpoint / MANIFEST
        manifest.write_bytes(manifest.read_bytes() + b"\n")

        said = refused(capsys, target, "--to", "dcp", str(container.root))
        assert "HEAD names another" in said

    def test_another_jobs_run_spec(
        self, container: Container, target: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        other = container.root / "other.json"
        other.write_text(replace(SPEC, seed=SPEC.seed + 1).to_json())
        where = ["--run-spec", str(other), str(container.checkpoint)]

        assert "is not the run spec" in refused(capsys, target, "--to", "dcp", *where)

    def test_a_step_that_is_not_committed(
        self, container: Container, target: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        said = refused(capsys, target, "--to", "dcp", "--step", "4", str(container.root))

        assert "no checkpoint of step 4 is committed; HEAD names those of 3" in said

    def test_a_head_without_checkpoints(
        self, container: Container, target: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (container.root / HEAD).write_text(Head(generation=1).to_json())

        said = refused(capsys, target, "--to", "dcp", str(container.root))
        assert "nothing of this job is committed yet" in said

    def test_a_folder_of_something_else(
        self, tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        said = refused(capsys, target, "--to", "dcp", str(tmp_path))

        assert "neither HEAD" in said

    def test_hugging_face_without_the_base(
        self, container: Container, target: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        said = refused(capsys, target, "--to", "hf", str(container.root))

        assert "--base FOLDER" in said

    def test_a_base_that_is_not_the_jobs(
        self, container: Container, target: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = ["--base", str(container.root), str(container.root)]

        assert "--base must be" in refused(capsys, target, "--to", "hf", *arguments)

    def test_a_target_that_exists_is_left_alone(self, container: Container, target: Path) -> None:
        target.write_text("mine")

        with pytest.raises(SystemExit, match="exists"):
            main(["--to", "dcp", str(container.root), str(target)])

        assert target.read_text() == "mine"
