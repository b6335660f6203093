"""Checkpoints of the real trainer, read by programs that are not ours.

The reader of docs/ at every ZeRO stage, full and LoRA; torch's `dcp.load`, transformers'
`from_pretrained` and DeepSpeed's engine on what `trainer.convert` made of them.
"""

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

from tests.azurite import Azurite
from tests.repository.sources import ROOT
from tests.system.training import saves
from tests.system.training.saves import Saved
from trainer.checkpoint.fragments import STATES
from trainer.convert import dcp as to_dcp
from trainer.convert import hf, universal
from trainer.convert.source import find_checkpoint
from trainer.convert.whole import FullParameters
from trainer.engine.deepspeed_engine import parameter_groups
from trainer.model.base_model import load_model

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ALONE = ("full-zero1", "lora-zero3")
ALL = [(2, f"{kind}-zero{stage}") for kind in ("full", "lora") for stage in (1, 2, 3)]
ALL += [(1, name) for name in ALONE]
Saves = dict[tuple[int, str], Saved]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny model and its data."""
    return saves.build_calm_inputs(tmp_path_factory.mktemp("foreign") / "inputs")


@pytest.fixture(scope="module")
def saved(inputs: Path) -> Saves:
    """Return a save of every case by two ranks, and of some by one."""
    by_two = saves.make(inputs.with_name("two"), inputs, 2)
    by_one = saves.make(inputs.with_name("one"), inputs, 1, ALONE)
    return {(2, name): s for name, s in by_two.items()} | {
        (1, name): s for name, s in by_one.items()
    }


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    """docs/read_checkpoint.py, as a user has it: a file by itself."""
    spec = importlib.util.spec_from_file_location("reader", ROOT / "docs" / "read_checkpoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("world", "name"), ALL)
def test_the_reader_finds_the_parameters_that_the_trainer_has(
    saved: Saves, reader: ModuleType, world: int, name: str
) -> None:
    save = saved[world, name]
    digest = hashlib.sha256()
    for parameter, states in reader.parameters(*reader.verified(save.container)):
        digest.update(parameter.encode() + b"\0" + states["master"].tobytes())
        assert set(states) == set(STATES)
        assert (states["exp_avg_sq"] >= 0).all()

    assert digest.hexdigest() == save.parameters_sha256


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_every_sharding_reads_as_the_same_bits(saved: Saves, reader: ModuleType, kind: str) -> None:
    flat, sharded = (saved[2, f"{kind}-zero{stage}"].container for stage in (2, 3))
    sharded_states = dict(reader.parameters(*reader.verified(sharded)))

    for parameter, states in reader.parameters(*reader.verified(flat)):
        for state, array in states.items():
            assert array.tobytes() == sharded_states[parameter][state].tobytes()
            assert array.any() or "lora_A" in parameter  # B begins as zero: A has no gradient yet


@pytest.mark.parametrize("file", ["rank-00001.safetensors", "rank-00000.index.json"])
def test_the_reader_refuses_a_flipped_bit(
    saved: Saves, reader: ModuleType, tmp_path: Path, file: str
) -> None:
    folder = shutil.copytree(saved[2, "lora-zero2"].checkpoint, tmp_path / "checkpoint")
    flip(folder / file)

    with pytest.raises(ValueError, match=f"{file} is damaged"):
        reader.verified(folder)


def test_the_reader_refuses_another_manifest(
    saved: Saves, reader: ModuleType, tmp_path: Path
) -> None:
    container = shutil.copytree(saved[2, "lora-zero2"].container, tmp_path / "container")
    (manifest,) = container.glob("checkpoints/*/manifest.json")
    manifest.write_bytes(manifest.read_bytes() + b" ")

    with pytest.raises(ValueError, match="not the one that HEAD names"):
        reader.verified(container)


def test_the_reader_runs_as_a_program_by_itself(saved: Saves, tmp_path: Path) -> None:
    alone = shutil.copy(ROOT / "docs" / "read_checkpoint.py", tmp_path)
    command = [sys.executable, "-I", alone, str(saved[2, "full-zero3"].checkpoint)]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert "model.embed_tokens.weight (1024, 128) master " in process.stdout


@pytest.mark.parametrize(
    ("world", "name"),
    [
        (2, "full-zero1"),
        (2, "full-zero3"),
        (2, "lora-zero2"),
        (1, "lora-zero3"),
        (2, "reward-full"),
        (2, "reward-lora"),
    ],
)
def test_a_hugging_face_folder_is_the_one_that_the_trainer_would_export(
    saved: Saves, inputs: Path, tmp_path: Path, world: int, name: str
) -> None:
    from transformers import (  # noqa: PLC0415 - 3 seconds
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
    )

    save, folder = saved[world, name], tmp_path / "hf"
    is_reward = save.spec.method == "reward"
    kind = AutoModelForSequenceClassification if is_reward else AutoModelForCausalLM
    folder.mkdir()
    hf.write_hf(open_parameters(save), save.spec, inputs / "models" / "tiny", folder, limit=300_000)

    assert len(list(folder.glob("model-*.safetensors"))) > 1
    converted, exported = (kind.from_pretrained(f) for f in (folder, save.model))
    same(converted.state_dict(), exported.state_dict())
    assert converted.dtype == exported.dtype
    assert converted.config.pad_token_id == exported.config.pad_token_id
    assert {f.name for f in save.model.iterdir()} - {f.name for f in folder.iterdir()} <= {
        "README.md",
        "model.safetensors",
        "rank-00000.json",
        "report.json",
    }


@pytest.mark.parametrize("name", ["lora-zero3", "reward-lora"])
def test_adapters_are_exported_by_themselves_as_peft_reads_them(
    saved: Saves, inputs: Path, tmp_path: Path, name: str
) -> None:
    save = saved[2, name]
    hf.write_hf(open_parameters(save), save.spec, inputs / "models" / "tiny", tmp_path)

    converted, exported = tmp_path / "adapter", save.model / "adapter"
    file = "adapter_model.safetensors"
    same(load_file(converted / file), load_file(exported / file))
    assert adapter_config(converted) == adapter_config(exported)


@pytest.mark.filterwarnings(
    "ignore:torch.distributed is disabled:UserWarning",  # torch's, as one process loads
    "ignore:.*is_gradient_checkpointing:FutureWarning",  # transformers', of what peft asks
)
@pytest.mark.parametrize("name", ["full-zero2", "lora-zero3"])
def test_torch_loads_a_module_and_its_optimizer_from_dcp(
    saved: Saves, inputs: Path, tmp_path: Path, name: str
) -> None:
    save = saved[2, name]
    to_dcp.write_dcp(open_parameters(save), save.spec, tmp_path / "dcp")
    model, optimizer = plain(save, inputs)
    options = StateDictOptions(ignore_frozen_params=True)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    state = {"model": model_state, "optimizer": optimizer_state, "training": {"step": 0}}
    shared = DefaultLoadPlanner(allow_partial_load=True)  # the tied weight's second name
    dcp.load(state, checkpoint_id=tmp_path / "dcp", planner=shared, no_dist=True)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=StateDictOptions(ignore_frozen_params=True, strict=False),
    )

    source = open_parameters(save)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert set(trained) == set(source.shapes)
    for parameter, tensor in trained.items():
        assert torch.equal(tensor.detach(), source.tensor(parameter, "master"))
        assert torch.equal(optimizer.state[tensor]["exp_avg"], source.tensor(parameter, "exp_avg"))
        moment = optimizer.state[tensor]["exp_avg_sq"]
        assert torch.equal(moment, source.tensor(parameter, "exp_avg_sq"))
        assert float(optimizer.state[tensor]["step"]) == source.index.optimizer_step == 1
    assert state["training"]["step"] == 1
    assert next(g["weight_decay"] for g in optimizer.param_groups) == save.spec.weight_decay


def test_deepspeed_resumes_bit_for_bit_at_every_stage(saved: Saves, tmp_path: Path) -> None:
    pairs = [("full-zero1", "full-zero1"), ("full-zero2", "full-zero2")]
    pairs += [("full-zero2", "full-zero3"), ("lora-zero3", "lora-zero2")]
    for source, run in pairs:
        root = tmp_path / f"{source}-{run}"
        root.mkdir()
        (root / "run").symlink_to(saved[2, run].container.parent)
        universal.write_universal(
            open_parameters(saved[2, source]), saved[2, source].spec, root / "universal"
        )

    folders = [tmp_path / f"{source}-{run}" for source, run in pairs]
    saves.torchrun(2, "tests.system.training.foreign_engine", *map(str, folders))

    for folder, (_, run) in zip(folders, pairs, strict=True):
        losses = json.loads((folder / "losses.json").read_text())
        expected = saved[2, run].losses
        assert {int(step): loss for step, loss in losses.items()} == {
            2: expected[2],
            3: expected[3],
        }


def test_a_checkpoint_is_converted_from_blob(
    saved: Saves, azurite: Azurite, tmp_path: Path
) -> None:
    save = saved[2, "lora-zero2"]
    with azurite.container("job") as container:
        for file in save.container.rglob("*"):
            if file.is_file():
                container.upload_blob(str(file.relative_to(save.container)), file.read_bytes())
        url = azurite.container_sas(container.container_name, permissions="rl")
        convert = [sys.executable, "-m", "trainer.convert", "--to", "dcp", url]
        subprocess.run([*convert, str(tmp_path / "far")], check=True, capture_output=True)
    to_dcp.write_dcp(open_parameters(save), save.spec, tmp_path / "near")

    assert contents(tmp_path / "far") == contents(tmp_path / "near") != {}
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def open_parameters(save: Saved) -> FullParameters:
    """Open the checkpoint in the way in which every conversion reads it."""
    source = find_checkpoint(str(save.container), Path("unused"))
    return FullParameters(source.folder, source.manifest)


def plain(save: Saved, inputs: Path) -> tuple[Any, torch.optim.AdamW]:
    """Return the fp32 module and its optimizer, like a program without DeepSpeed has them."""
    model = load_model(inputs / "models" / "tiny", save.spec, {}, pad_id=0).float()
    return model, torch.optim.AdamW(parameter_groups(model, save.spec.weight_decay), lr=1.0)


def same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Check that both hold the same tensors, bit for bit."""
    assert set(actual) == set(expected)
    assert [name for name in actual if not torch.equal(actual[name], expected[name])] == []
    assert {t.dtype for t in actual.values()} == {t.dtype for t in expected.values()}


def adapter_config(folder: Path) -> dict[str, Any]:
    """peft's configuration, its set of modules in order."""
    config: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text())
    return config | {"target_modules": sorted(config["target_modules"])}


def contents(folder: Path) -> dict[str, str]:
    """Digest of each file but torch's own record, which names objects by address."""
    files = [f for f in folder.iterdir() if f.name != ".metadata"]
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
