"""A job that begins with a checkpoint: its base model is made once, and read by every attempt."""

import hashlib
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from awscrt import checksums

from tests.azurite import Azurite
from tests.nodes.scripted_service import ScriptedService, serving
from tests.nodes.supervised import Scene, make_job, staged
from trainer.contract import (
    BASE_FOLDER,
    CONVERTED_BASE,
    MANIFEST,
    RUN_SPEC,
    ConvertedBase,
    DirectiveKind,
    InputFile,
    NodePhase,
    RunSpec,
    StartingCheckpoint,
    converted_base_path,
)

EARLIER = "ftjob-earlier"
CONVERTER = """
import pathlib, sys
source, target = map(pathlib.Path, sys.argv[-2:])
given = dict(zip(sys.argv[1:-2:2], sys.argv[2:-2:2]))
mode = (pathlib.Path(__file__).parent / "mode").read_text()
if mode != "convert":
    print("Traceback of all sorts\\nnot converted: " + mode, file=sys.stderr)
    sys.exit(75 if "disk" in mode else 1)
count = pathlib.Path(__file__).parent / "conversions"
count.write_text(count.read_text() + "x" if count.exists() else "x")
target.mkdir()
base = sorted(pathlib.Path(given["--base"]).glob("model*"))
parts = [pathlib.Path(given["--run-spec"]), *sorted(source.iterdir()), *base]
(target / "model.safetensors").write_bytes(b"".join(part.read_bytes() for part in parts))
(target / "config.json").write_text("{}")
(target / "adapter").mkdir()
(target / "adapter" / "adapter_model.safetensors").write_bytes(b"no part of the model")
"""
SHARD = b"shard" * 1000


@pytest.fixture
async def scene(azurite: Azurite, tmp_path: Path) -> AsyncIterator[Scene]:
    """Yield a job whose base model is made of a checkpoint; no supervisor runs yet."""
    with azurite.container("job") as container, azurite.container("inputs") as inputs:
        job = make_job(azurite, container, inputs)
        blobs = {f"{EARLIER}/c/rank-00000.safetensors": SHARD}
        blobs[f"{EARLIER}/c/{MANIFEST}"] = b"{}"
        blobs[f"{EARLIER}/{RUN_SPEC}"] = b"{spec}"
        for name, data in blobs.items():
            inputs.upload_blob(name, data)
        files = {name: _described(name, data) for name, data in blobs.items()}
        start = StartingCheckpoint(
            files=tuple(files[name] for name in sorted(files) if "/c/" in name),
            run_spec=files[f"{EARLIER}/{RUN_SPEC}"],
        )
        spec = RunSpec.from_json(job.spec)
        spec = replace(spec, base_model=replace(spec.base_model, checkpoint=start))
        job.spec = spec.to_json().encode()
        container.upload_blob(RUN_SPEC, job.spec, overwrite=True)
        sas_urls = {name: azurite.blob_sas(inputs.container_name, name) for name in files}
        job.grants = replace(job.grants, inputs=job.grants.inputs | sas_urls)
        (tmp_path / "converter.py").write_text(CONVERTER)
        (tmp_path / "mode").write_text("convert")
        async with (
            serving(ScriptedService(job.grants)) as service,
            staged(service, job, tmp_path) as staged_scene,
        ):
            staged_scene.converter = (sys.executable, str(tmp_path / "converter.py"))
            yield staged_scene


def _described(name: str, data: bytes) -> InputFile:
    return InputFile(path=name, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def conversions(scene: Scene) -> int:
    """How many there were."""
    return len((scene.folder / "conversions").read_text())


async def test_the_first_node_converts_and_all_nodes_and_attempts_read_that(scene: Scene) -> None:
    first_node, second_node = scene.service.add("one"), scene.service.add("two", "127.0.0.2")
    works = [scene.start(node) for node in (first_node, second_node)]
    await scene.generation(first_node, second_node)
    await scene.trains(first_node, second_node)
    converted = ConvertedBase.from_json(scene.job.text(CONVERTED_BASE))
    contents = [
        (work_folder / "gen-0001/base/model.safetensors").read_bytes() for work_folder in works
    ]
    remaining = [path for path in (works[0] / "inputs").rglob("*") if EARLIER in str(path)]
    scene.job.container.upload_blob(f"{converted_base_path(7)}/model.safetensors", b"half")
    for node in (first_node, second_node):
        await scene.service.direct(node, DirectiveKind.CHECKPOINT_AND_STOP, number=1)
    await scene.until(
        lambda: all(n.has_reported(NodePhase.STOPPED, 1) for n in (first_node, second_node))
    )
    new_node = scene.service.add("fresh", "127.0.0.3")
    later_folder = scene.start(new_node)
    await scene.generation(new_node, number=2)
    await scene.until((later_folder / "gen-0002" / "ready").exists)

    assert conversions(scene) == 1
    assert [file.path for file in converted.files] == [
        f"job-test/{converted_base_path(1)}/{name}" for name in ("config.json", "model.safetensors")
    ]
    assert (
        contents[0]
        == contents[1]
        == (later_folder / "gen-0002/base/model.safetensors").read_bytes()
    )
    assert contents[0] == b"{spec}" + b"{}" + SHARD + b"weights" * 5000
    assert [path for path in remaining if path.is_file()] == [], "room for what comes"
    assert not (later_folder / "inputs" / EARLIER).exists()
    assert {name.rpartition("/")[0] for name in scene.job.names(f"{BASE_FOLDER}/")} == {
        BASE_FOLDER,
        converted_base_path(1),
    }, "what was left half is gone"


async def test_whoever_is_first_decides_what_all_train_on(scene: Scene) -> None:
    """A node that is cut off may still convert; what it made would be the same but for a bit."""
    scene.job.container.upload_blob(f"{converted_base_path(9)}/model.safetensors", b"another")
    crc = f"{checksums.crc64nvme(b'another'):016x}"
    path = f"job-test/{converted_base_path(9)}/model.safetensors"
    file = InputFile(path=path, size=7, sha256="", crc64nvme=crc)
    scene.job.container.upload_blob(CONVERTED_BASE, ConvertedBase(files=(file,)).to_json())
    node = await scene.run_one()
    work_folder = scene.folder / "one"
    await scene.trains(node)

    assert (work_folder / "gen-0001/base/model.safetensors").read_bytes() == b"another"
    assert not (scene.folder / "conversions").exists()


@pytest.mark.parametrize(
    ("cause", "phase", "non_retryable"),
    [("lm_head is nowhere", NodePhase.FAILED, True), ("disk full", NodePhase.STOPPED, False)],
)
async def test_what_cannot_be_converted_is_told_and_tried_again_where_that_may_help(
    scene: Scene, cause: str, phase: NodePhase, non_retryable: bool
) -> None:
    (scene.folder / "mode").write_text(cause)
    node = await scene.run_one()
    await scene.until(lambda: node.has_reported(phase, 1))

    assert (
        f"the checkpoint that the job begins with: not converted: {cause}"
        in node.last_heartbeat.error
    )
    assert node.last_heartbeat.non_retryable == non_retryable
    assert scene.job.names(f"{BASE_FOLDER}/") == []
