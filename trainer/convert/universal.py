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


def write_universal(parameters: FullParameters, spec: RunSpec, target: Path) -> None:
    """Write the checkpoint below ``target``, the folder that `load_checkpoint` gets."""
    tag = f"global_step{parameters.index.step}"
    folder = target / tag
    (folder / "zero").mkdir(parents=True)
    for name in parameters.shapes:
        _write_parameter(parameters, name, folder / "zero" / name)
    torch.save(_optimizer(parameters, spec), folder / "zero" / "optimizer_state.pt")
    for file in MODEL_STATES:  # of stages 1 and 2, and of stage 3
        torch.save(_model_states(parameters, spec), folder / file)
    (target / LATEST).write_text(tag)


def _write_parameter(parameters: FullParameters, name: str, folder: Path) -> None:
    folder.mkdir()
    for state, file_name in FILES.items():
        torch.save({"param": parameters.tensor(name, state)}, folder / f"{file_name}.pt")
    torch.save(_step(parameters), folder / "step.pt")


def _optimizer(parameters: FullParameters, spec: RunSpec) -> dict[str, Any]:
    groups = [group.numbers for group in parameter_groups(parameters, spec)]
    # Stage 3 gives all groups what the first one has. So the decay, in which ours differ, is
    # left out there, and every group keeps its own.
    shared = {k: v for k, v in groups[0].items() if k != "weight_decay"}
    return {
        "ds_version": DEEPSPEED,
        "param_groups": groups,
        "optimizer_state_dict": {
            "state": {0: {"step": _step(parameters)}},
            "param_groups": [shared],
        },
    }


def _model_states(parameters: FullParameters, spec: RunSpec) -> dict[str, Any]:
    """Return the state besides the tensors; unknown members come back as the client's state."""
    return {
        "module": {},
        "dp_world_size": parameters.index.world_size,
        "mp_world_size": 1,
        "global_steps": parameters.index.step,
        "global_samples": parameters.index.step * spec.global_batch,
        "skipped_steps": 0,
        "lr_scheduler": {"last_batch_iteration": parameters.index.step - 1},
        "ds_version": DEEPSPEED,
        "step": parameters.index.step,
        "consumed_samples": parameters.index.consumed_samples,
        "run_spec_sha256": parameters.index.run_spec_sha256,
    }


def _step(parameters: FullParameters) -> torch.Tensor:
    return torch.tensor(float(parameters.index.optimizer_step))
