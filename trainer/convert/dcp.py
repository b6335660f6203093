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


def write_dcp(whole: FullParameters, spec: RunSpec, target: Path) -> None:
    """Write the checkpoint into ``target``, one file for each tensor.

    torch keeps in memory what it writes until a file ends.
    """
    writer = dcp.FileSystemWriter(target, single_file_per_rank=False, thread_count=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that one process saves is meant so
        dcp.save(_plan(whole, spec), storage_writer=writer, planner=_Reading(whole), no_dist=True)


def _plan(whole: FullParameters, spec: RunSpec) -> dict[str, Any]:
    """Build the state dict with tensors on the meta device."""
    step = torch.tensor(float(whole.index.optimizer_step))
    state = {
        name: {"step": step} | {moment: _hollow(whole, name) for moment in MOMENTS}
        for name in whole.shapes
    }
    told = [g.numbers | {"params": list(g.names)} for g in parameter_groups(whole, spec)]
    return {
        MODEL: {name: _hollow(whole, name) for name in whole.shapes},
        OPTIMIZER: {"state": state, "param_groups": told},
        TRAINING: {
            "step": whole.index.step,
            "consumed_samples": whole.index.consumed_samples,
            "run_spec_sha256": whole.index.run_spec_sha256,
        },
    }


def _hollow(whole: FullParameters, name: str) -> torch.Tensor:
    return torch.empty(whole.shapes[name], dtype=torch.float32, device="meta")


class _Reading(DefaultSavePlanner):  # type: ignore[misc]  # torch is untyped here
    """Reads a tensor from the checkpoint only when torch is about to write it."""

    def __init__(self, whole: FullParameters) -> None:
        super().__init__()
        self._whole = whole

    def lookup_object(self, index: Any) -> Any:  # noqa: ANN401
        """Return the object that torch writes next."""
        found = super().lookup_object(index)
        if not (isinstance(found, torch.Tensor) and found.is_meta):
            return found
        path = cast("tuple[str, ...]", self.mappings[index.fqn])
        if path[0] == MODEL:
            return self._whole.tensor(path[1], "master")
        return self._whole.tensor(path[2], path[3])
