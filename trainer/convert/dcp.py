"""Convert to torch's distributed checkpoint, from which `dcp.load` fills a module and its AdamW.

The keys are those of `torch.distributed.checkpoint.state_dict.get_state_dict` below "model" and
"optimizer"; "training" holds the position of the run.
"""

import warnings
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from trainer.contract import RunSpec
from trainer.convert.whole import FullParameters, parameter_groups

MODEL, OPTIMIZER, TRAINING = "model", "optimizer", "training"
MOMENTS = ("exp_avg", "exp_avg_sq")


def write_dcp(parameters: FullParameters, spec: RunSpec, target: Path) -> None:
    """Write the checkpoint into ``target``, one file for each tensor.

    torch keeps in memory what it writes until a file ends.
    """
    writer = dcp.FileSystemWriter(target, single_file_per_rank=False, thread_count=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that one process saves is meant so
        dcp.save(
            _plan(parameters, spec),
            storage_writer=writer,
            planner=_Reading(parameters),
            no_dist=True,
        )


def _plan(parameters: FullParameters, spec: RunSpec) -> dict[str, Any]:
    """Build the state dict with tensors on the meta device."""
    step = torch.tensor(float(parameters.index.optimizer_step))
    state = {
        name: {"step": step} | {moment: _meta_tensor(parameters, name) for moment in MOMENTS}
        for name in parameters.shapes
    }
    groups = [g.numbers | {"params": list(g.names)} for g in parameter_groups(parameters, spec)]
    return {
        MODEL: {name: _meta_tensor(parameters, name) for name in parameters.shapes},
        OPTIMIZER: {"state": state, "param_groups": groups},
        TRAINING: {
            "step": parameters.index.step,
            "consumed_samples": parameters.index.consumed_samples,
            "run_spec_sha256": parameters.index.run_spec_sha256,
        },
    }


def _meta_tensor(parameters: FullParameters, name: str) -> torch.Tensor:
    return torch.empty(parameters.shapes[name], dtype=torch.float32, device="meta")


class _Reading(DefaultSavePlanner):  # type: ignore[misc]  # torch is untyped here
    """Reads a tensor from the checkpoint only when torch is about to write it."""

    def __init__(self, parameters: FullParameters) -> None:
        super().__init__()
        self._parameters = parameters

    def lookup_object(self, index: Any) -> Any:  # noqa: ANN401
        """Return the object that torch writes next."""
        value = super().lookup_object(index)
        if not (isinstance(value, torch.Tensor) and value.is_meta):
            return value
        path = cast("tuple[str, ...]", self.mappings[index.fqn])
        if path[0] == MODEL:
            return self._parameters.tensor(path[1], "master")
        return self._parameters.tensor(path[2], path[3])
