"""Convert to DeepSpeed's universal checkpoint, from which an engine with `load_universal` resumes.

DeepSpeed makes one from its own checkpoints offline. Stages 1 and 2 read other members of some
files than stage 3 does; this folder holds both.
"""

from pathlib import Path
from typing import Any

import torch

from trainer.contract import RunSpec
from trainer.convert.whole import FullParameters, parameter_groups

DEEPSPEED = "0.19.8"  # whose loader was read, and is tested against
LATEST = "latest_universal"
MODEL_STATES = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt")
FILES = {"master": "fp32", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}  # ours: theirs


def write_universal(whole: FullParameters, spec: RunSpec, target: Path) -> None:
    """Write the checkpoint below ``target``, the folder that `load_checkpoint` gets."""
    tag = f"global_step{whole.index.step}"
    folder = target / tag
    (folder / "zero").mkdir(parents=True)
    for name in whole.shapes:
        _write_parameter(whole, name, folder / "zero" / name)
    torch.save(_optimizer(whole, spec), folder / "zero" / "optimizer_state.pt")
    for file in MODEL_STATES:  # of stages 1 and 2, and of stage 3
        torch.save(_model_states(whole, spec), folder / file)
    (target / LATEST).write_text(tag)


def _write_parameter(whole: FullParameters, name: str, folder: Path) -> None:
    folder.mkdir()
    for ours, theirs in FILES.items():
        torch.save({"param": whole.tensor(name, ours)}, folder / f"{theirs}.pt")
    torch.save(_step(whole), folder / "step.pt")


def _optimizer(whole: FullParameters, spec: RunSpec) -> dict[str, Any]:
    told = [group.numbers for group in parameter_groups(whole, spec)]
    # Stage 3 gives all groups what the first one has. So the decay, in which ours differ, is
    # left out there, and every group keeps its own.
    alike = {k: v for k, v in told[0].items() if k != "weight_decay"}
    return {
        "ds_version": DEEPSPEED,
        "param_groups": told,
        "optimizer_state_dict": {"state": {0: {"step": _step(whole)}}, "param_groups": [alike]},
    }


def _model_states(whole: FullParameters, spec: RunSpec) -> dict[str, Any]:
    """Return the state besides the tensors; unknown members come back as the client's state."""
    return {
        "module": {},
        "dp_world_size": whole.index.world_size,
        "mp_world_size": 1,
        "global_steps": whole.index.step,
        "global_samples": whole.index.step * spec.global_batch,
        "skipped_steps": 0,
        "lr_scheduler": {"last_batch_iteration": whole.index.step - 1},
        "ds_version": DEEPSPEED,
        "step": whole.index.step,
        "consumed_samples": whole.index.consumed_samples,
        "run_spec_sha256": whole.index.run_spec_sha256,
    }


def _step(whole: FullParameters) -> torch.Tensor:
    return torch.tensor(float(whole.index.optimizer_step))
