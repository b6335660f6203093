"""A checkpoint becomes another program's folder whole or not at all; what is wrong is said."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from deepspeed.runtime.lr_schedules import WarmupLR
from safetensors.torch import load_file

from tests.nodes.forged import forged
from tests.nodes.scripted_node import committed
from tests.system.exactness.worlds import place_checkpoint
from tests.unit.trainer.checkpoint.test_saver import PATH, save
from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.checkpoint.checksum import describe_file
from trainer.checkpoint.index import RankIndex, index_name
from trainer.contract import HEAD, MANIFEST, RUN_SPEC, Head, Manifest
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
        manifest_sha256 = hashlib.sha256(manifest.to_json().encode()).hexdigest()
        entry = replace(committed(3, 1), path=PATH, manifest_sha256=manifest_sha256)
        (self.root / HEAD).write_text(Head(generation=1, checkpoints=(entry,)).to_json())

    def parameters(self) -> FullParameters:
        """Return the parameters of the checkpoint that is converted."""
        manifest = Manifest.from_json((self.checkpoint / MANIFEST).read_bytes())
        return FullParameters(self.checkpoint, manifest)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    """One that is in order."""
    rundir = RunDir(tmp_path / "run")
    save(rundir)
    sealed = Container(tmp_path / "container")
    place_checkpoint(rundir.save_folder(PATH), sealed.checkpoint)
    (sealed.root / RUN_SPEC).write_text(SPEC.to_json())
    sealed.seal()
    return sealed


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where nothing is yet."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "target"


def test_every_rank_adds_its_part(container: Container) -> None:
    checkpoint = container.parameters()

    parts = [load_file(container.checkpoint / tensors_name(rank)) for rank in (0, 1)]
    assert checkpoint.shapes == {"weight": (5, 3), "bias": (5,)}
    for state in ("master", "exp_avg", "exp_avg_sq"):
        joined = torch.cat([shard[f"weight|{state}"] for shard in parts])
        assert torch.equal(checkpoint.tensor("weight", state).view(-1), joined)


def test_a_part_that_is_nowhere_is_told_by_its_parameters_name(container: Container) -> None:
    path = container.checkpoint / index_name(1)
    index = RankIndex.from_json(path.read_bytes())
    path.write_text(replace(index, fragments=index.fragments[1:]).to_json())

    with pytest.raises(ValueError, match="weight: elements 7 to 15 are in no file"):
        container.parameters().tensor("weight", "master")


def test_groups_are_those_that_the_trainer_makes(container: Container) -> None:
    module = torch.nn.Linear(3, 5)
    names = {id(p): name for name, p in module.named_parameters()}
    converted = converted_groups(container.parameters(), SPEC)
    expected = parameter_groups(module, SPEC.weight_decay)

    assert [list(g.names) for g in converted] == [
        [names[id(p)] for p in g["params"]] for g in expected
    ]
    assert [g.numbers["weight_decay"] for g in converted] == [g["weight_decay"] for g in expected]


def test_a_deepspeed_scheduler_goes_on_where_it_would_be(
    container: Container, target: Path
) -> None:
    universal.write_universal(container.parameters(), SPEC, target)
    model_states = torch.load(
        target / "global_step3" / universal.MODEL_STATES[0], weights_only=True
    )

    scheduler = WarmupLR(torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]))
    for _ in range(3):
        scheduler.step()
    assert model_states["lr_scheduler"] == scheduler.state_dict()


@pytest.mark.parametrize("limit", [1, 50, 10**9])
def test_a_model_is_split_into_files_that_are_small_enough(tmp_path: Path, limit: int) -> None:
    tensors = {"a": torch.rand(2, 3), "b": torch.rand(()), "c": torch.rand(7), "d": torch.rand(0)}
    shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    shards.write_model(tmp_path, shapes, torch.bfloat16, tensors.__getitem__, limit)

    files = [load_file(f) for f in tmp_path.glob("*.safetensors")]
    joined = {name: tensor for file in files for name, tensor in file.items()}
    assert joined.keys() == tensors.keys()
    assert all(torch.equal(joined[n], t.to(torch.bfloat16)) for n, t in tensors.items())
    assert len(files) == {1: 4, 50: 1, 10**9: 1}[limit]


def flipped(container: Container) -> None:
    file = container.checkpoint / tensors_name(0)
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def forged_file(container: Container) -> None:
    file = container.checkpoint / tensors_name(0)
    file.write_bytes(forged(file.read_bytes(), at=file.stat().st_size - 20))


def another_manifest(container: Container) -> None:
    manifest = container.checkpoint / MANIFEST
    manifest.write_bytes(manifest.read_bytes() + b"\n")


def nothing_committed(container: Container) -> None:
    (container.root / HEAD).write_text(Head(generation=1).to_json())


DCP, ALL = "--to dcp ", "{root}"


@pytest.mark.parametrize(
    ("harm", "arguments", "expected"),
    [
        pytest.param(flipped, DCP + ALL, f"{tensors_name(0)} is damaged", id="flipped"),
        pytest.param(forged_file, DCP + ALL, f"{tensors_name(0)} is damaged: sha256", id="forged"),
        pytest.param(
            lambda c: (c.checkpoint / tensors_name(1)).unlink(),
            "--to universal {root}",
            f"{tensors_name(1)} is missing",
            id="missing",
        ),
        pytest.param(another_manifest, DCP + ALL, "HEAD names another", id="manifest"),
        pytest.param(
            lambda c: (c.root / "other.json").write_text(replace(SPEC, seed=99).to_json()),
            DCP + "--run-spec {root}/other.json {checkpoint}",
            "is not the run spec",
            id="run spec",
        ),
        pytest.param(
            Container.seal,
            DCP + "--step 4 {root}",
            "no checkpoint of step 4 is committed; HEAD names those of 3",
            id="step",
        ),
        pytest.param(nothing_committed, DCP + ALL, "nothing of this job is committed", id="none"),
        pytest.param(Container.seal, DCP + "{checkpoint}/..", "neither HEAD", id="folder"),
        pytest.param(Container.seal, "--to hf {root}", "--base FOLDER", id="no base"),
        pytest.param(
            Container.seal, "--to hf --base {root} {root}", "--base must be", id="other base"
        ),
    ],
)
def test_what_is_wrong_with_a_checkpoint_is_said_and_nothing_is_left(
    harm: Callable[[Container], object],
    arguments: str,
    expected: str,
    container: Container,
    target: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    harm(container)
    argv = arguments.format(root=container.root, checkpoint=container.checkpoint).split()

    with pytest.raises(SystemExit) as raised:
        main([*argv, str(target)])

    assert list(target.parent.iterdir()) == []
    capsys.readouterr()
    assert expected in str(raised.value.code)


def test_a_target_that_exists_is_left_alone(container: Container, target: Path) -> None:
    target.write_text("mine")

    with pytest.raises(SystemExit, match="exists"):
        main(["--to", "dcp", str(container.root), str(target)])

    assert target.read_text() == "mine"
