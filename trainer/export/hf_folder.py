"""Export the final model as a Hugging Face folder, and hash its trained parameters.

Adapters are merged into the base weights, so that `from_pretrained` needs nothing else, and are
also kept under `adapter/`. Adapters of QLoRA are merged into the base model as it was staged, not
into the quantized one (adr/0023).
"""

import hashlib
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from safetensors.torch import save_file

from trainer.checkpoint.checksum import describe_file
from trainer.checkpoint.fragments import owned_fragments
from trainer.contract import RunSpec, model_path
from trainer.export.companion_files import ADAPTER, copy_companions
from trainer.export.model_card import write_card
from trainer.export.report import make_report, trained_parameters, write_report
from trainer.model.actor_critic import actor_of
from trainer.model.base_model import load_unquantized
from trainer.model.tokenizer import base_folder
from trainer.rundir import RankSave, RunDir, write_atomically
from trainer.state import RankIdentity, TrainingState
from trainer.verify.result import Verification

PEFT_PREFIX = "base_model.model."
HEAD = ".modules_to_save.default."
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ExportedModel:
    """A model in the outbox; the supervisor does not upload it until it is sealed."""

    path: str  # in the job's container
    folder: Path
    parameters_sha256: str
    trained: int  # parameters


def export_model(
    engine: Any,  # noqa: ANN401
    rundir: RunDir,
    spec: RunSpec,
    identity: RankIdentity,
    state: TrainingState,
) -> ExportedModel | None:
    """Gather the model on rank 0 and write its files; collective. None on other ranks."""
    digest = parameters_sha256(engine)
    weights = _gather(engine)
    if identity.rank != 0:
        return None
    path = model_path(state.step, identity.nonce)
    folder = rundir.save_folder(path)
    folder.mkdir(parents=True, exist_ok=True)
    base = base_folder(rundir, spec.base_model)
    _write_model(actor_of(engine.module), weights, spec, folder, base)
    copy_companions(base, folder, spec)
    trained = trained_parameters(engine)
    return ExportedModel(path=path, folder=folder, parameters_sha256=digest, trained=trained)


def seal_export(
    exported: ExportedModel,
    rundir: RunDir,
    spec: RunSpec,
    identity: RankIdentity,
    state: TrainingState,
    verification: Verification,
    warnings: tuple[str, ...],
) -> None:
    """Add report, card and record; from then on the supervisor may upload the model."""
    folder, digest = exported.folder, exported.parameters_sha256
    report = make_report(folder, rundir, spec, identity, state, exported.trained, digest)
    report = replace(report, warnings=warnings, verification=verification)
    write_report(report, folder)
    write_card(report, spec, folder)
    names = sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())
    record = RankSave(
        path=exported.path,
        rank=0,
        writers=1,
        step=state.step,
        consumed_samples=state.consumed_samples,
        world_size=identity.world_size,
        generation=identity.generation,
        kind="final",
        saved_at=time.time(),
        files=tuple(describe_file(folder / name, name) for name in names),
        parameters_sha256=digest,
    )
    write_atomically(folder / record.name, record.to_json())
    log.info("exported %s, parameters %s", exported.path, digest)


def parameters_sha256(engine: Any) -> str:  # noqa: ANN401
    """Hash (name, fp32 master bytes) of every trained parameter, by name; collective.

    Equal for every way of sharding the same numbers. Rank 0 gets the hash; others get "".
    """
    owned = {fragment.name: fragment for fragment in owned_fragments(engine)}
    digest = hashlib.sha256()
    named = {n: p for n, p in engine.module.named_parameters() if p.requires_grad}
    for name in sorted(named):
        numel = getattr(named[name], "ds_numel", named[name].numel())
        flat = torch.zeros(numel, dtype=torch.float32, device=engine.device)
        if fragment := owned.get(name):
            piece = flat.narrow(0, fragment.start, fragment.numel)
            piece += fragment.views["master"].detach().to(flat.device)  # it may be on the host
        dist.reduce(flat, dst=0)
        if engine.global_rank == 0:
            digest.update(name.encode() + b"\0" + memoryview(flat.cpu().numpy()))
    return digest.hexdigest() if engine.global_rank == 0 else ""


def _gather(engine: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401
    """Gather every parameter on rank 0's host, one at a time, so that no GPU holds them all."""
    weights = {}
    sharded = engine.zero_optimization_stage() == 3
    for name, parameter in actor_of(engine.module).named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], enabled=sharded):
            if engine.global_rank == 0:
                weights[name] = parameter.detach().to("cpu", copy=True)
    return weights


def _write_model(
    module: Any,  # noqa: ANN401
    weights: dict[str, torch.Tensor],
    spec: RunSpec,
    folder: Path,
    base: Path,
) -> None:
    if spec.lora is None:
        module.save_pretrained(folder, state_dict=weights)
        return
    _write_adapter(module, weights, spec, folder / ADAPTER)
    target = module.get_base_model()
    if spec.lora.quantized:
        target = load_unquantized(base, spec, module.config.pad_token_id)
        weights = weights | _unquantized_weights(target, weights)
    target.save_pretrained(folder, state_dict=merge_adapters(module, weights))


def _unquantized_weights(base: Any, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:  # noqa: ANN401
    """Return the original weight of each quantized weight below an adapter."""
    own = {name: _base_name(name) for name in weights if name.endswith(".base_layer.weight")}
    return {name: base.get_parameter(at).detach() for name, at in own.items()}


def merge_adapters(module: Any, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:  # noqa: ANN401
    """Return the base model's weights under their own names, with the adapters added in fp32.

    A classifier's head is trained whole; peft keeps the original beside it.
    """
    merged = {}
    for name, weight in weights.items():
        if ".lora_" in name or ".original_module." in name:
            continue
        layer, _, leaf = name.rpartition(".base_layer.")
        own_name = _base_name(name)
        if layer and leaf == "weight":
            a = weights[f"{layer}.lora_A.default.weight"].float()
            b = weights[f"{layer}.lora_B.default.weight"].float()
            scale = module.get_submodule(layer).scaling["default"]
            merged[own_name] = (weight.float() + scale * (b @ a)).to(weight.dtype)
        else:
            merged[own_name] = weight
    return merged


def _base_name(name: str) -> str:
    """Return the base model's name of a weight."""
    return name.removeprefix(PEFT_PREFIX).replace(".base_layer.", ".").replace(HEAD, ".")


def _write_adapter(
    module: Any,  # noqa: ANN401
    weights: dict[str, torch.Tensor],
    spec: RunSpec,
    folder: Path,
) -> None:
    from peft import get_peft_model_state_dict  # noqa: PLC0415 - a full fine-tune saves its import

    config = module.peft_config["default"]
    config.base_model_name_or_path = spec.base_model.name
    config.inference_mode = True
    config.save_pretrained(folder)
    adapter = get_peft_model_state_dict(module, state_dict=weights, save_embedding_layers=False)
    save_file(adapter, folder / "adapter_model.safetensors", metadata={"format": "pt"})
