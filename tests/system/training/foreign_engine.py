"""A training program that knows DeepSpeed and not our checkpoints: it resumes from a universal one.

`python -m tests.system.training.foreign_engine ROOT...` under torchrun. Each ROOT has the folder
`run` (tests/system/training/saves.py) and `universal`, the converted checkpoint. Model, data and
loss are those of the run; restoring is DeepSpeed's own `load_checkpoint` alone. Rank 0 leaves the
losses of the remaining steps in `losses.json`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"  # noqa: TID251 - DeepSpeed reads it when it is imported

import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist

from trainer.contract import RunSpec
from trainer.data.prefetch import BatchPrefetcher
from trainer.data.tokens import open_tokens
from trainer.engine.deepspeed_engine import (
    accumulate_gradients,
    build_config,
    parameter_groups,
    update_parameters,
)
from trainer.engine.lr_schedule import learning_rate
from trainer.methods.interface import scaled_loss
from trainer.methods.supervised import SupervisedLoss
from trainer.model.base_model import load_model
from trainer.model.tokenizer import base_folder, load_tokenizer
from trainer.process.sync_flags import sum_over_ranks
from trainer.rundir import RunDir
from trainer.state import RankIdentity


def resume(root: Path, identity: RankIdentity) -> dict[int, float]:
    """Let DeepSpeed resume, train to the run's end, and return the loss of each step."""
    rundir = RunDir(root / "run")
    spec = RunSpec.from_json(rundir.run_spec.read_bytes())
    base = base_folder(rundir, spec.base_model)
    config = build_config(spec, identity.world_size) | {"checkpoint": {"load_universal": True}}
    torch.manual_seed(1)  # what is not restored shall differ
    tokenizer = load_tokenizer(base)
    model = load_model(base, spec, config, tokenizer.pad_token_id)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=parameter_groups(model, spec.weight_decay), config=config
    )
    _, client = engine.load_checkpoint(str(root / "universal"))
    assert engine.global_steps == client["step"]
    for state in engine.optimizer.optimizer.state.values():
        state["step"] = state["step"].clone()  # stage 3 gives all groups one and the same tensor
    engine.train()
    rows = open_tokens(root / "none", rundir.input(spec.training_file.path), tokenizer, spec)
    feed = BatchPrefetcher(rows, tokenizer.pad_token_id, spec, identity)
    consumed, losses = client["consumed_samples"], {}
    for step in range(client["step"] + 1, spec.total_steps + 1):
        _set_rate(engine, spec, step)
        losses[step] = _train(engine, feed, consumed, identity)
        consumed += spec.global_batch
    return losses


def _train(engine: Any, feed: BatchPrefetcher, consumed: int, identity: RankIdentity) -> float:  # noqa: ANN401
    batches = feed.step(consumed)
    (tokens,) = sum_over_ranks(sum(batch.targets for batch in batches), device=engine.device)
    loss = torch.zeros(())
    for number, batch in enumerate(batches, start=1):
        scores = SupervisedLoss().scores(engine, batch)
        accumulate_gradients(engine, scaled_loss(scores.loss, int(tokens), identity.world_size))
        loss = loss + scores.loss.detach()
        if number < len(batches):
            engine.step()
    update_parameters(engine)
    (loss_sum,) = sum_over_ranks(loss, device=engine.device)
    return float(loss_sum / max(tokens, 1))


def _set_rate(engine: Any, spec: RunSpec, step: int) -> None:  # noqa: ANN401
    rate = learning_rate(
        step,
        peak=spec.learning_rate,
        warmup_steps=spec.warmup_steps,
        total_steps=spec.total_steps,
        min_ratio=spec.min_lr_ratio,
    )
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def main() -> None:
    """Be one rank."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", verbose=False)
    identity = RankIdentity(
        rank=dist.get_rank(),
        local_rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        generation=1,
        run_spec_sha256="",
        nonce="",
    )
    for root in map(Path, sys.argv[1:]):
        losses = resume(root, identity)
        if identity.rank == 0:
            (root / "losses.json").write_text(json.dumps(losses))
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
